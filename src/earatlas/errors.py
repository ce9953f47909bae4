"""What a user can get wrong, and how it is said.

Every message follows one wording: `<argument> must <rule>, got <value>. <what to do>.`
The command line turns these, and only these, into one sentence and exit code 2; anything else
that is raised is a bug of ours and keeps its traceback.
"""

__all__ = ["EaratlasWarning", "InputError", "missing_extra"]


class InputError(ValueError):
    """The input cannot be used as it is; the message says why and what to do."""


class EaratlasWarning(UserWarning):
    """The input was used, but the answer may suffer; the message says how."""


def missing_extra(extra: str, package: str) -> InputError:
    """The error for a feature whose optional dependency is not installed."""
    return InputError(
        f"This needs the package {package}, which is not installed. "
        f"Install it with: pip install 'earatlas[{extra}]'."
    )
