import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from evenkeel_runtime.serve.server import read_reason


class Settings(BaseModel):
    num_seats: int = Field(gt=0)
    name: str

    @field_validator("name")
    @classmethod
    def _refuse(cls, name: str) -> str:
        raise ValueError(f"no {name}\n  is here")


def test_a_refused_configuration_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(num_seats=0)  # type: ignore[call-arg]
    assert read_reason(caught.value) == "Input should be greater than 0; Field required"


def test_a_fault_of_several_lines_is_said_in_one() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(num_seats=1, name="model")
    assert read_reason(caught.value) == "Value error, no model is here"


def test_other_errors_say_their_first_line() -> None:
    assert read_reason(RuntimeError("\nno memory\nat line 7")) == "no memory"
    assert read_reason(RuntimeError()) == ""
