"""Nothing of a credential stays, whatever its characters, its quotes and its length."""

import html
import itertools
import json
import re
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.privacy.rules import RuleKind
from evenkeel.privacy.text_redactor import RedactionTally, built_in

NAMES = ["password", "client_secret", "api_key", "refresh_token", "aws_session_token"]
SYMBOLS = " !#%&()*+,-./:;<=>?@[]^_{|}~$\\\"'"
# Between all symbols of a secret, so that any rest of it has one.
MARK = "ZQ9"
# Where the text after the secret starts.
END = "EndOfIt"
QUOTED: dict[str, Callable[[str, str], str]] = {
    "JSON": lambda name, value: json.dumps({name: value, "b": END}),
    "JSON, compact": lambda name, value: json.dumps({name: value}, separators=(",", ":")) + END,
    "JSON in JSON": lambda name, value: json.dumps([json.dumps({name: value})]) + END,
    "JSON in JSON in JSON": lambda name, value: (
        json.dumps([json.dumps([json.dumps({name: value})])]) + END
    ),
    "Python": lambda name, value: f"{{'{name}': '{_escape(value, quote=chr(39))}'}}{END}",
    "an assignment": lambda name, value: f'{name}="{_escape(value)}"\n{END}',
    "YAML": lambda name, value: f"{name}: '{_escape(value, quote=chr(39))}'\n{END}",
    "Markdown": lambda name, value: f"The {name} is `{value}`. {END}",
    "Markdown, two backticks": lambda name, value: f"{name}: ``{value}`` {END}",
    "XML": lambda name, value: f"<{name}>{html.escape(value)}</{name}>{END}",
    "JSON in HTML": lambda name, value: html.escape(json.dumps({name: value})) + END,
    "JSON in a query": lambda name, value: f"/t?d={quote(json.dumps({name: value}))}&x={END}",
    "JSON, cut off": lambda name, value: json.dumps({name: value})[:-2],
    "JSON in CSV": lambda name, value: f"1,{_in_csv(json.dumps({name: value, 'b': ''}))},{END}",
    "JSON in JSON in CSV": lambda name, value: (
        _in_csv(json.dumps([json.dumps({name: value})])) + END
    ),
    "JSON in CSV in CSV": lambda name, value: (
        _in_csv("1," + _in_csv(json.dumps({name: value}))) + END
    ),
    "JSON in CSV in JSON": lambda name, value: (
        json.dumps([_in_csv(json.dumps({name: value}))]) + END
    ),
    "JSON in CSV, cut off": lambda name, value: _in_csv(json.dumps({name: value}))[:-4],
    "Python in SQL": lambda name, value: (
        "'" + QUOTED["Python"](name, value).replace("'", "''") + "'"
    ),
}
# Doubled or tripled quotes after a name without any: with a separator behind, they are empty.
DOUBLED: dict[str, Callable[[str, str], str]] = {
    "an assignment in CSV": lambda name, value: _in_csv(f'{name} = "{_escape(value)}"') + END,
    "an assignment in SQL": lambda name, value: (
        "'" + f"{name}='{_escape(value, quote=chr(39))}'".replace("'", "''") + f"'{END}"
    ),
    "three quotes": lambda name, value: f'{name} = """{_escape(value)}"""{END}',
    "three single quotes": lambda name, value: (
        f"{name} = '''{_escape(value, quote=chr(39))}'''{END}"
    ),
}
JAVASCRIPT = "!~*'()"  # what encodeURIComponent keeps
BARE: dict[str, Callable[[str, str], str]] = {
    "a form": lambda name, value: f"a=1&{name}={quote_plus(value)}&b={END}",
    "a query of JavaScript": lambda name, value: (
        f"/x?{name}={quote(value, safe=JAVASCRIPT)}&b={END}"
    ),
    "a query in Go's JSON": lambda name, value: json.dumps(
        {"url": f"/x?{name}={quote(value)}&b={END}"}
    ).replace("&", "\\u0026"),
    "a query in HTML": lambda name, value: html.escape(f"/x?{name}={quote(value)}&b={END}"),
    "a header": lambda name, value: f"{name}: {quote(value, safe=',;(){}|&@!')}\r\nx: {END}",
    "a line": lambda name, value: f"{name}={quote(value, safe=',;(){}|&@!')}\n{END}",
    "a connection string": lambda name, value: f"{name}={quote(value)};Initial Catalog={END}",
    "a call": lambda name, value: f"f({name}={quote(value, safe='@!|')}, x={END})",
}


# What stands before a quoted value: nothing, or quotes that may have no partner in sight.
BEFORE = {
    "nothing": "",
    "an inch mark": 'see 5" disk ',
    "an apostrophe": "it's 5' tall ",
    "a closed string": '{"user": "ana"} ',
    "the end of a string": 'and more", ',
    "a long string": '{"role":"user","content":"' + "lorem ipsum " * 100 + '",',
    "many long strings": '{"key":"value","b":"cxxxxxxxxxxxx",' * 40,
    "half a tick": "`",
}
# Every run of five such bytes was replaced before values could contain any character.
PLAIN_RUN = re.compile(r"""[^\s"'\\,;&<>(){}|]{5}""")
PLAIN_PLACEHOLDER = re.compile(r"\$[A-Za-z_]|%[a-z]|[.~]{0,2}/")


def _escape(value: str, quote: str = '"') -> str:
    return value.replace("\\", "\\\\").replace(quote, "\\" + quote)


def _in_csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def redact(text: str) -> str:
    redacted = built_in(kind=RuleKind.SECRET).redact(
        text.encode(), RedactionTally(), may_drop=False
    )
    assert redacted is not None
    return redacted.decode()


@st.composite
def secrets(draw: st.DrawFn, *, first: str = SYMBOLS) -> str:
    symbols = draw(st.text(SYMBOLS, max_size=8))
    start = draw(st.sampled_from(["", *first]))
    length = draw(st.sampled_from([1, 1, 1, 200]))
    return start + MARK + "!" + MARK + "".join(symbol + MARK * length for symbol in symbols)


@pytest.mark.parametrize("form", QUOTED)
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), secrets())
def test_a_quoted_value_is_gone_up_to_its_closing_quote(form: str, name: str, value: str) -> None:
    sent = QUOTED[form](name, value)
    redacted = redact(sent)
    assert MARK not in redacted
    assert (END in redacted) is (END in sent)


@pytest.mark.parametrize("form", DOUBLED)
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), secrets(first="!#%*-=@^_~$("))
def test_a_value_in_several_quotes_is_gone_up_to_as_many(form: str, name: str, value: str) -> None:
    redacted = redact(DOUBLED[form](name, value))
    assert MARK not in redacted
    assert END in redacted


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_plain_value_in_quotes_is_gone_whatever_it_begins_with(before: str) -> None:
    values = ["hunter2xyz", "9hunter2xyz", "1abc", "Zk9x/8aQ2m7w3Jt5LrP0vYb==", "abc-def.ghi"]
    for first, value in itertools.product(["", *string.punctuation], values):
        secret = first + value
        if not PLAIN_RUN.match(secret) or PLAIN_PLACEHOLDER.match(secret):
            continue
        for mark, name in itertools.product(
            "\"'", ["@password@:", "@api_key@ = ", "pwd=", "pwd: "]
        ):
            text = f"{before}{name.replace('@', mark)}{mark}{secret}{mark},{END}"
            assert secret not in redact(text), text


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_value_behind_a_name_in_quotes_is_gone_whatever_it_begins_with(before: str) -> None:
    # A dollar sign or slash begins a variable or a path.
    for first in {*SYMBOLS, "\t"} - {*"$/\\\"'"}:
        for mark, name in [('"', "password"), ("'", "api_key"), ('\\"', "client_secret")]:
            text = f"{before}{mark}{name}{mark}:{mark}{first}hunter2xyz{mark},{END}"
            assert "hunter2xyz" not in redact(text), text


# What assigns a value, or compares it with one, in the languages of source code and configuration.
OPERATORS = ["=", ":", ":=", "=>", "->", "?=", "+=", "<-", "::=", "||=", "??=", ".=", "?:"]
COMPARISONS = ["==", "===", "!=", "!=="]


@pytest.mark.parametrize("quote", ['"', "'", "`", '""', '"""', '\\"'])
@pytest.mark.parametrize(
    "operator", [*OPERATORS, *COMPARISONS, ": str =", ": &str =", "?: string ="]
)
def test_a_quoted_value_is_gone_whatever_assigns_it(operator: str, quote: str) -> None:
    for space, name in itertools.product(
        ["", " ", "  "], ["db_password", f"{quote}api_key{quote}"]
    ):
        text = f"{name}{space}{operator}{space}{quote}{{}}{quote} {END}"
        for value in ("$1abc", "hunter22", "*hunter2xyz", "correct horse"):
            assert redact(text.format(value)) == text.format("[credential]")


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_value_without_quotes_is_gone_whatever_assigns_it(operator: str) -> None:
    for space, value in itertools.product(["", " "], ["1abcd", "s3cret99", "x/8aQ2+7w3Jt5=="]):
        text = f"DB_PASSWORD{space}{operator}{space}{{}} {END}"
        assert redact(text.format(value)) == text.format("[credential]")


@pytest.mark.parametrize("quote", ["", '"', "'", "`", '""', "``"])
@pytest.mark.parametrize(
    ("text", "secret", "rule"),
    [
        ("pin=QSQ", "4711", "pin"),
        ("QpinQ: QSQ", "4711", "pin"),
        ("pin := QSQ", "4711", "pin"),
        ("Authorization: Bearer QSQ", "9hT4kQz8Tn2WmY6rB1c", "bearer"),
        ("QAuthorizationQ: QBearer SQ", "9hT4kQz8Tn2WmY6rB1c", "bearer"),
        ("QAuthorizationQ: Qtoken SQ", "9hT4kQz8Tn2WmY6rB1c", "bearer"),
        ("Authorization: Basic QSQ", "YW5hOndvbmRlcg==", "bearer"),
        ("the secret key QSQ", "wJalrXUtnFEMI" + "/K7MDENG/bPxRfiCYAMPLEKEY12", "aws_secret"),
        ("Qaws_secretQ: QSQ", "wJalrXUtnFEMI" + "/K7MDENG/bPxRfiCYAMPLEKEY12", "aws_secret"),
    ],
)
def test_other_secrets_are_gone_in_any_quotes(
    text: str, secret: str, rule: str, quote: str
) -> None:
    text = text.replace("Q", quote)
    assert redact(text.replace("S", secret)) == text.replace("S", f"[{rule}]")


@pytest.mark.parametrize(
    ("text", "secret", "rule"),
    [
        ("`password`: ``@@``", "S3cretPass!9x", "credential"),
        ("`password`: ``@@``", " S3cret`Pass!9x ", "credential"),
        ("`password` = ``@@`` and `user`", ",S3cr t9", "credential"),
        ("* `API key`: ```@@```", "sk_S3cretPass9x", "credential"),
        ('{"password": """@@"""}', "S3cretPass9", "credential"),
        ("{'password': '''@@'''}", "S3cretPass9", "credential"),
        ('"""password""": """@@"""', "#S3cretPass9", "credential"),
        ('"password = ""@@"""', "#S3cretPass9", "credential"),
        ("password: ''@@''", "S3cretPass9", "credential"),
        ("Here is your API key:\n```python\n@@\n```", "sk_S3cretPass9x", "credential"),
        ("Here is your API key:\n\n```\n@@\n```", "9f8e7d6c5b4a", "credential"),
        ("password: ```@@\n```", "hunter22", "credential"),
        ("password: ```@@\n```", "correcthorse", "credential"),
        ("password -> @@", "S3cr3t!pass9", "credential"),
        ("old_password -> @@.", "Summer2024", "credential"),
        ("password->@@;", "hunter2xyz", "credential"),
        ("password -> @@", "Tr0ub4dor&3", "credential"),
        ("password -> `@@`", "hunter22", "credential"),
        ("DB_PASSWORD ?= @@", "default_password", "credential"),
        ("password += @@", "pass@word1", "credential"),
        ('password: str | None = "@@"', "three times", "credential"),
        ('password: Optional[str] = "@@"', "three times", "credential"),
        ('if password == "@@":', "objects", "credential"),
        ("'pin' => @@,", "4711", "pin"),
        ("pin => `@@`", "4711", "pin"),
        ('"pin" => "@@"', "4711", "pin"),
        ('""pin"" => ""@@""', "4711", "pin"),
        ("``pin`` => ``@@``", "4711", "pin"),
        ("pin == '@@'", "4711", "pin"),
    ],
)
def test_a_secret_is_gone_though_it_resembles_code(text: str, secret: str, rule: str) -> None:
    assert redact(text.replace("@@", secret)) == text.replace("@@", f"[{rule}]")


def test_code_in_a_sentence_stays() -> None:
    for text in (
        "the `password` field, `token` and `api_key`: each a `string`",
        "`password`: `str`, `secret`: ``bytes``, `pin`: `int`",
        "set `password=` and `token=`, then `Bearer` and `Basic`",
        "a `pin=` of `4` digits; the secret key `name`",
        "password: `/run/secrets/db`, api_key: `$API_KEY` or `${API_KEY}`",
        "use `password`, then `Authorization: Bearer <token>`",
        "Rename `password` -> `new_password_hash`, ``secret`` -> ``Client.secret``",
    ):
        assert redact(text) == text


@pytest.mark.parametrize("form", BARE)
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), secrets(first=""))
def test_a_value_without_quotes_is_gone_up_to_its_end(form: str, name: str, value: str) -> None:
    sent = BARE[form](name, value)
    redacted = redact(sent)
    assert MARK not in redacted
    assert END in redacted


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["#", "/", "?", "@", "!&;,"]), st.sampled_from([1, 300]))
def test_a_password_in_an_address_is_gone(symbol: str, length: int) -> None:
    secret = MARK + symbol + MARK * length
    redacted = redact(f"DB=postgres://app:{secret}@db.example:5432/x?y={END}")
    assert redacted == f"DB=postgres://app:[url_credentials]@db.example:5432/x?y={END}"


@pytest.mark.parametrize("length", [30, 400, 4000])
@pytest.mark.parametrize(
    "text",
    [
        "https://hooks.slack.com/services/T0/@@",
        "access_token=@@&x=1",
        '"aws_session_token": "@@"',
        "Authorization: Bearer @@",
        "Authorization: Bearer 12|@@",
        "?sig=@@",
    ],
)
def test_a_long_secret_is_gone_to_its_end(text: str, length: int) -> None:
    assert MARK not in redact(text.replace("@@", MARK * length))


@pytest.mark.parametrize(
    "text",
    [
        'url = "password=" + password + "&user="',
        '["password:"], ["user name:"]',
        'console.log("password:", password, "done")',
        '{"note":"my password:","b":"x and more"}',
        '["Enter your password:", "Confirm the new one:"]',
        '<label for="password">Your password</label>',
        "password: string | null; token: string|undefined;",
        '{"token": "a sentence of 5 words", "logprob": -0.1}',
        '{"password": "${DB_PASSWORD}", "secret": "{{ vault.key }}", "api_key": "<your key>"}',
        "secret = normalise(finding.secret, rule)",
        "secret=foo(bar), next",
        "secret=foo(bar, 2)",
        "connect(password=read(path.name), secret=str(s))",
        "https://cdn.example.com:8443/npm/react@18.2.0/index.js",
        "http://localhost:8000/@ana and https://example.com:443/?to=@ana",
        "http://[::1]:8080/@x and http://[2001:db8::1]/@x and http://[::1]:$PORT/@x",
        "http://localhost:$PORT/@vite/client and http://localhost:${PORT}/@vite/client",
        "http://127.0.0.1:{port}/@id/x",
        'connect(user="ana", password="", host="db.example", note="")',
        "connect(password='', host='db.example'); secret = ''.join(words1)",
        'secret = "".join(secrets.choice(letters1) for _ in range(20))',
        '<input name="password" password="" value="1"/><x password=""/>',
        '1,"{""password"": """", ""user"": ""ana12345""}","x"',
        '1,"{""password"": ""${DB_PASSWORD}"", ""secret"": null, ""api_key"": ""<key>""}"',
        '"say ""password:"", then ""user name1:""","b12345"',
        'a,"connect(password="""", host=""db1.example"")"',
        '"""password""","""user name1"""',
        'password = """\nuser = 1',
        "user->password->hash(salt); secret->expires_at = 1; token->user.name; secret->size=12;",
        "def read_password(path: Path) -> str: ...",
        "password -> string, secret -> bytes",
        "password += random.choice(letters); secret += chr(number)",
        "if password == confirmation2 or password != old_password1: pass",
        "password <- readline()",
        "interface User { password?: string; api_key?: string | null }",
        'password: string = "";  secret: str | None = null',
        "password: str = Field(min_length=8)",
        "password: str = os.environ['DB_PASSWORD1']",
        "/reset-password?user=ana12345",
        '{"password": "", "x": ""}; {"password":"", "y1": "b12345"}',
        "`password`: ``, `user1`: ``; `password`: ``",
        "secret->length-1; secret->count++; secret->flags|=FLAG_X; secret->flags&=~FLAG_Y;",
        "$user->password->set($hash2); $password .= substr($abc1, 0, 1);",
        "if (secret->size!=32 && secret->type=='x') { x = ok?pwd->current:NULL; }",
        "ctx->secret->value8, ctx->secret->sha256Sum, secret->x25519_key; secret->SHA256_LEN",
        "memcpy(a, secret->bytes+off, secret->length*2)",
        "memcpy(a,secret->bytes+off,secret->length*0x20)",
        "old_password -> new_password; password -> Settings/Security; secret -> sha256",
        'typeof password === "function" || typeof secret == "object"',
        'secret !== "unknown"',
        "assert pin == 1000; map pin => 12345; pin=>4096",
        "password ?: default_password",
        "secret <- read_secret()",
        "password += random_char(); password .= chunk2; secret ||= load_secret(1)",
        "secret|=bytes; secret += 100000; secret |= 0x80000;",
        'password=""#comment',
        'wrong password: retry count = "three times"',
        "secret: ''emphasised'', the secret is ''hard work''",
        "Set the password:\n```python\nsetup(1)\nx = 12345\n```",
        "Set the password:\n```bash\n./reset.sh\n```",
        "Set the password:\n```\nreset_password\n```",
        "Here is your password:\n```bash\nnpm-install2\n```; token:\n```\n9f8e7d6c\n```",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "postgres://app:$hunter2xyz@db.example",
        "postgres://app:{hunter2xyz}@db.example",
        "http://[::hunter2xyz]@db.example",
        "http://[::1/hunter2xyz@db.example",
        "password=hunter(2xyz)",
        "secret=foo(bar)hunter2xyz",
        "secret=foo(hunter2xyz",
        "password=Hunter(hunter2xyz)",
    ],
)
def test_what_only_resembles_a_port_or_a_call_is_gone(text: str) -> None:
    assert "2xyz" not in redact(text)


def test_what_follows_a_value_stays() -> None:
    assert redact("{password: hunter22, user: ana}") == "{password: [credential], user: ana}"
    assert redact("?password=p(1)long&user=ana") == "?password=[credential]&user=ana"
    assert redact("(the password is hunter22).") == "(the password is [credential])."
    assert redact("password=hunter22;user=ana") == "password=[credential];user=ana"
    text = json.dumps({"a": "the password: 'hunter22", "b": "it's mine"})
    assert json.loads(redact(text)) == {"a": "the password: '[credential]", "b": "it's mine"}
