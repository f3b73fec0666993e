"""``chatsrv chat`` as a person uses it: a process with a keyboard, a screen and Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chatsrv.new_key import entry
from tests.chatsrv.conftest import RunningServer, ServerThread, wait_until
from tests.fakes import FakeEngine

# A process takes a while to start, and what it shows does not depend on the store.
pytestmark = pytest.mark.parametrize("shared_server", ["embedded"], indirect=True)


class Person:
    """Types into the program and reads what it shows."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chatsrv.cli", "chat", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.screen = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def sees(self, text: str) -> None:
        wait_until(lambda: text in self.screen, timeout_s=30)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def leave(self) -> int:
        """Ctrl-D."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        status = self._process.wait(20)
        self._reader.join()
        self._process.stdout.close()
        return status

    def _read(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.read1():  # type: ignore[attr-defined]
            self.screen += piece.decode()


@pytest.fixture
def person(server: RunningServer) -> Iterator[Person]:
    person = Person("--url", server.url, "--system", "Be brief.", "--temperature", "0")
    yield person
    assert person.leave() == 0


def test_an_answer_cannot_command_the_terminal(server: RunningServer, person: Person) -> None:
    server.engine.enqueue("\x1b]0;title\x07\x1b[2J\u009b31mred\rover\ttab\nline")
    person.type("Hello\n")
    person.sees("\ufffd]0;title\ufffd\ufffd[2J\ufffd31mred\ufffdover\ttab\nline\n\n> ")


def test_a_server_with_keys_is_told_the_key(
    serve: Callable[..., ServerThread], tmp_path: Path, shared_server: RunningServer
) -> None:
    keys, key_file = tmp_path / "keys.toml", tmp_path / "key"
    keys.write_text(entry("ada", "user", "ada-key"))
    key_file.write_text("ada-key\n")
    with serve(FakeEngine(), api_keys=str(keys)) as guarded:
        person = Person("--url", guarded.url, "--key-file", str(key_file))
        person.type("Hello\n")
        person.sees("You said: Hello\n\n> ")
        assert person.leave() == 0


def test_a_conversation_with_history(server: RunningServer, person: Person) -> None:
    person.type("Hello\n")
    person.sees("You said: Hello\n\n> ")
    person.type("\nAgain\n")
    person.sees("You said: Again\n\n> ")
    expected = "system\nBe brief.user\nHelloassistant\nYou said: Hellouser\nAgainassistant\n"
    assert server.engine.submissions[-1].text == expected
    params = server.engine.submissions[-1].params
    assert params.is_greedy, "what the person said"
    assert (params.top_p, params.repetition_penalty) == (0.9, 1.1), "what the server recommends"


def test_ctrl_c_stops_the_answer_and_not_the_program(server: RunningServer, person: Person) -> None:
    server.engine.delay_s = 0.01
    server.engine.enqueue("0123456789" * 100)
    person.type("count\n")
    person.sees("0123")
    person.interrupt()
    person.sees("[stopped]\n\n> ")
    person.interrupt()
    person.sees("/quit leaves)")
    server.engine.delay_s = 0.0
    person.type("next\n")
    person.sees("You said: next")


def test_errors_are_shown_and_the_chat_goes_on(server: RunningServer, person: Person) -> None:
    person.type("x" * 5000 + "\n")
    person.sees("the model's limit is 4096")
    person.type("short\n")
    person.sees("You said: short")


def test_no_server_is_one_sentence(server: RunningServer) -> None:
    person = Person("--url", "http://127.0.0.1:1")
    person.sees("cannot talk to http://127.0.0.1:1")
    assert person.leave() == 1
