"""A renewed certificate is taken into force; files that do not match change nothing."""

import subprocess
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.ports.tls import Tls, read_tls
from tests.fixtures.certificate import make_certificate


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    return certificate, key


def test_a_renewed_certificate_replaces_the_one_before(files: tuple[Path, Path]) -> None:
    tls = Tls(*files, None)
    before = tls.current
    tls.reload()
    assert tls.current is before
    make_certificate(*files)
    tls.reload()
    assert tls.current.chain == files[0].read_bytes() != before.chain
    assert tls.current.context is not before.context


def test_half_of_a_renewal_waits_for_the_other(
    files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(*files, None)
    before = tls.current
    renewed = tmp_path / "new.pem", tmp_path / "new-key.pem"
    make_certificate(*renewed)
    renewed[0].replace(files[0])
    for _ in range(2):
        tls.reload()
        assert tls.current is before
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    renewed[1].replace(files[1])
    tls.reload()
    assert tls.current.key == files[1].read_bytes() != before.key


def test_a_file_that_is_gone_leaves_the_certificate_in_use(files: tuple[Path, Path]) -> None:
    tls = Tls(*files, None)
    before = tls.current
    files[1].unlink()
    tls.reload()
    assert tls.current is before


def test_clients_need_a_certificate_if_there_is_an_authority(files: tuple[Path, Path]) -> None:
    tls = Tls(*files, files[0])
    assert tls.current.client_ca == files[0].read_bytes()
    assert tls.current.context.verify_mode.name == "CERT_REQUIRED"


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(*files, None)
    before = tls.current
    encrypted = tmp_path / "encrypted.pem"
    subprocess.run(
        ["openssl", "ec", "-in", files[1], "-aes256", "-passout", "pass:x", "-out", encrypted],
        check=True,
        capture_output=True,
    )
    with pytest.raises(ConfigurationError, match="is encrypted"):
        Tls(files[0], encrypted, None)
    encrypted.replace(files[1])
    tls.reload()
    assert tls.current is before
    assert "is encrypted" in caplog.text


def test_a_certificate_needs_its_key(files: tuple[Path, Path]) -> None:
    assert read_tls(None, None, None) is None
    with pytest.raises(ConfigurationError, match="needs both"):
        read_tls(files[0], None, None)
    with pytest.raises(ConfigurationError, match=r"with .*cert\.pem"):
        read_tls(files[0], files[0], None)
