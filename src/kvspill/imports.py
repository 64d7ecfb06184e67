"""Whether Python is importing a module: nothing may be raised into that."""

from types import CodeType, FrameType

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def importing(frame: FrameType | None, since: CodeType | None = None) -> bool:
    """Whether an import is under way where this frame is, begun since the call of that code.

    An exception that comes into an import can be swallowed there, as one in a weak reference's callback is,
    or end in the panic of an extension module.
    """
    while frame is not None and frame.f_code is not since:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False
