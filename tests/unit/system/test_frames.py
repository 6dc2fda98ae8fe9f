"""mortal_steps.system.frames"""

import socket

import pytest

from mortal_steps.system.frames import receive_frame, send_frame


@pytest.mark.parametrize("has_read", [True, False])
def test_an_end_that_is_gone_is_the_end_of_the_connection_whatever_it_has_left_unread(has_read):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            send_frame(ours, "an answer")
            if has_read:
                receive_frame(theirs)
        with pytest.raises(EOFError):
            receive_frame(ours)
