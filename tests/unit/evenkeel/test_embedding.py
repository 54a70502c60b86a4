"""Embeddings: on one thread, and with a static vector that hardly misses what is near."""

import os

import numpy as np
import pytest
from scipy.special import erf

from evenkeel.cli import BLAS_THREADS_VARIABLE, find_commands
from evenkeel.embedding import DIMENSIONS, _gelu, hash_model, load_encoder
from tests.fixtures.python_process import run_python

# Runs a command as `evenkeel` does, noting the variable when numpy is first looked for.
PROBE = """
import os, sys
seen = []
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "numpy":
            seen.append(os.environ.get(sys.argv[1]))
sys.meta_path.insert(0, Finder)
from evenkeel.cli import main
assert not seen, "numpy is loaded before main"
for command in sys.argv[2:]:
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert end.code == 0, end
import numpy
from threadpoolctl import threadpool_info
threads = {i["num_threads"] for i in threadpool_info() if "numpy" in i["filepath"]}
print(seen, threads, "OMP_NUM_THREADS" in os.environ, file=sys.stderr)
"""


def run(program: str, *arguments: str, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = run_python("-c", program, *arguments, env=inherited | environment)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


def test_numpy_is_loaded_for_one_thread_by_every_command() -> None:
    commands = [command.name for command in find_commands()]
    # Torch's threads, which vLLM computes with in its engine's process, are left alone.
    assert run(PROBE, BLAS_THREADS_VARIABLE, *commands) == "['1'] {1} False"


def test_a_number_of_threads_that_the_user_chose_is_kept() -> None:
    said = run(PROBE, BLAS_THREADS_VARIABLE, "doctor", **{BLAS_THREADS_VARIABLE: "2"})
    assert said.startswith("['2']")


def test_embeddings_take_one_thread_where_somebody_else_loaded_numpy() -> None:
    program = """
import numpy, sys
from evenkeel.embedding import DIMENSIONS, _gelu, hash_model, load_encoder
load_encoder()
from threadpoolctl import threadpool_info
print({i["num_threads"] for i in threadpool_info() if "numpy" in i["filepath"]}, file=sys.stderr)
"""
    assert run(program, **{BLAS_THREADS_VARIABLE: "2"}) == "{1}"


@pytest.mark.parametrize(
    ("text", "other", "is_near"),
    [
        pytest.param(
            "How do I return an item?", "Please, how can I return the items?", True, id="reworded"
        ),
        pytest.param(
            "How do I return an item?", "Which colours do your kettles come in?", False, id="unlike"
        ),
        pytest.param(
            "How do I reset the password?", "What do I do to reset my password?", True, id="longer"
        ),
        pytest.param("日本語で答えて", "日本語で答えてください", True, id="another script"),
    ],
)
def test_static_vectors_tell_what_may_be_near(text: str, other: str, is_near: bool) -> None:
    encoder = load_encoder()
    sketch, another = encoder.sketch(text), encoder.sketch(other)
    assert sketch is not None and another is not None
    assert np.linalg.norm(sketch) == pytest.approx(1.0, abs=1e-5)
    assert (float(sketch @ another) >= 0.4) is is_near


def test_many_texts_have_the_embeddings_of_each() -> None:
    encoder = load_encoder()
    texts = [
        "How do I return an item?",
        "",
        "日本語で答えて",
        *(f"kettle {i} " * i for i in range(60)),
    ]
    done: list[int] = []
    rows = encoder.encode_all(texts, done.append)
    assert rows.shape == (len(texts), DIMENSIONS)
    assert np.abs(rows - np.stack([encoder.encode(text) for text in texts])).max() < 1e-5
    assert (done == sorted(done), done[-1], len(done) > 1) == (True, len(texts), True)
    assert encoder.encode_all([]).shape == (0, DIMENSIONS)


def test_the_activation_is_that_of_the_error_function() -> None:
    values = np.linspace(-12, 12, 100_001, dtype=np.float32)
    exact = 0.5 * values * (1 + erf(values / np.sqrt(2)))
    assert np.abs(_gelu(values) - exact).max() < 1e-6


def test_a_model_is_named_by_what_it_is() -> None:
    assert len(hash_model()) == 64 and hash_model() == hash_model()


def test_texts_that_cannot_be_read_whole_have_no_static_vector() -> None:
    encoder = load_encoder()
    assert encoder.sketch("word " * 253) is not None
    assert encoder.sketch("word " * 254) is None
    assert encoder.sketch("") is None
