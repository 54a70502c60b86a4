"""The path behind `--root-path`, as vLLM's router reads it."""

import pytest

from evenkeel_runtime.request.arrival import route_path


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        pytest.param("", "/v1/models", "/v1/models", id="no root"),
        pytest.param(None, "/v1/models", "/v1/models", id="unset"),
        pytest.param("/api", "/api/v1/models", "/v1/models", id="the proxy leaves it"),
        pytest.param("/api", "/v1/models", "/v1/models", id="the proxy takes it away"),
        pytest.param("/api/", "/api/v1/models", "/v1/models", id="a slash at its end"),
        pytest.param("/v", "/v1/models", "/v1/models", id="no whole segment"),
        pytest.param("/api", "/apiv1", "/apiv1", id="another word"),
        pytest.param("/api", "/api/api/x", "/api/x", id="once only"),
        pytest.param("/", "/control", "/control", id="nothing but a slash"),
        pytest.param("/api", "/api", "/api", id="nothing behind it"),
    ],
)
def test_the_root_is_taken_off_in_whole_segments(
    root: str | None, path: str, expected: str
) -> None:
    assert route_path({"path": path, "root_path": root}) == expected
