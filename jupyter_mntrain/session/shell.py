"""Shell: runs the cells of a session on one rank, in IPython, in one namespace."""

from __future__ import annotations

import builtins
import os
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

import msgspec
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from jupyter_mntrain.model.quantities import size_text
from jupyter_mntrain.model.records.session import (
    Asked,
    At,
    Completions,
    Described,
    Done,
    End,
    Run,
    Shown,
    State,
)
from jupyter_mntrain.session.groups import SessionGroup
from jupyter_mntrain.session.output import KEPT_BYTES, Capture, CellOutput

KEPT_CELLS: Final = 20
"""Cells whose output can still be asked for."""
DISTRIBUTED: Final = ("torch/distributed/", "torch\\distributed\\")
TEXTS_SHOWN: Final = 4096
LINES_SHOWN: Final = 1000
CHARACTERS_SHOWN: Final = 2**18
"""Of a traceback and one part of it, of a message, a prompt, or what is known of a name."""
INLINE: Final = "module://matplotlib_inline.backend_inline"
"""What shows figures below a cell, as kernels have it."""


class SessionShell:
    """Runs cells on the main thread; other threads ask about them and interrupt them.

    Args:
        names: what cells find defined.
    """

    def __init__(self, rank: int, group: SessionGroup, names: dict[str, Any], device: str) -> None:
        self.rank, self.device = rank, device
        self._group = group
        self._capture = Capture()
        self._outputs: dict[int, CellOutput] = {}
        self._lock = threading.Lock()
        self._cells: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._running: CellOutput | None = None
        self._may_interrupt = False
        self._was_interrupted = False
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asks = False
        self._last_active_s = time.monotonic()
        self._skipped = self._failed_cell = 0
        self._pid = os.getpid()
        self.has_news = threading.Event()
        """Set when a cell begins or ends."""
        self._shell = _shell(names, self)
        builtins.input = self.ask

    # Called by the threads that speak with drivers.

    def state(self) -> State:
        newest = max(self._outputs, default=0)
        return State(
            rank=self.rank,
            cell=newest,
            is_running=self._running is not None or not self._cells.empty(),
            groups=self._group.times,
            is_broken=self._group.is_broken,
            failed_cell=self._failed_cell,
            device=self.device,
        )

    @property
    def idle_s(self) -> float:
        """Seconds since a cell was asked for or ended; 0 while one runs."""
        return 0.0 if self._running is not None else time.monotonic() - self._last_active_s

    def submit(self, request: Run) -> CellOutput:
        """Run a cell after those before it; one that is known is not run again."""
        with self._lock:
            known = self._outputs.get(request.cell)
            if known is not None:
                return known
            made = self._outputs[request.cell] = CellOutput(self.rank, request.cell)
            while len(self._outputs) > KEPT_CELLS:
                del self._outputs[min(self._outputs)]
            self._last_active_s = time.monotonic()
            self._cells.put(request)
            return made

    def output_of(self, cell: int) -> CellOutput | None:
        return self._outputs.get(cell)

    def interrupt(self, cell: int, *, breaks: bool) -> None:
        """End a cell, if it is the one that runs; one that waits for it is not run."""
        output = self._running
        if output is None or output.cell != cell:
            self._skipped = cell
            return
        self._was_interrupted = True
        if self._asks:
            self._answers.put("")
        if self._may_interrupt:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if breaks:
            self._group.break_off()

    def answer(self, text: str) -> None:
        if self._asks:
            self._answers.put(text)

    def where(self) -> At:
        """Return where the main thread is."""
        frames = sys._current_frames()  # noqa: SLF001 - the only way to another thread's stack
        frame = frames.get(threading.main_thread().ident or 0)
        if self._running is None or frame is None:
            return At(self.rank)
        line, source, call = self._place(frame)
        stack = "".join(traceback.format_stack(frame))
        return At(self.rank, line, shortened(source), call, shortened(stack))

    def complete(self, code: str, position: int) -> Completions:
        from IPython.core.completer import provisionalcompleter

        with provisionalcompleter():
            found = list(self._shell.Completer.completions(code, position))
        matches = tuple(dict.fromkeys(one.text for one in found))
        begin, end = (found[0].start, found[0].end) if found else (position, position)
        return Completions(self.rank, matches, begin, end)

    def inspect(self, code: str, position: int, detail: int) -> Described:
        from IPython.utils.tokenutil import token_at_cursor

        name = token_at_cursor(code, position)
        try:
            found = self._shell.object_inspect_mime(name, detail_level=detail)
        except KeyError:
            return Described(self.rank)
        return Described(self.rank, {kind: shortened(str(text)) for kind, text in found.items()})

    @property
    def names(self) -> dict[str, Any]:
        """The namespace of cells."""
        found: dict[str, Any] = self._shell.user_ns
        return found

    def end(self) -> None:
        """Let :meth:`run` return, after the cells that were asked for."""
        self._cells.put(None)

    # Called by the main thread.

    def run(self) -> None:
        """Run cells until :meth:`end`."""
        while (request := self._cells.get()) is not None:
            self._run(request, self._outputs[request.cell])
        self._capture.flush()

    def _on_interrupt(self, _: int, __: FrameType | None) -> None:
        if self._may_interrupt:
            raise KeyboardInterrupt

    def _run(self, request: Run, output: CellOutput) -> None:
        begun_s = time.perf_counter()
        self._was_interrupted = False
        self._running = output
        self.has_news.set()
        signal.signal(signal.SIGINT, self._on_interrupt)  # whatever the last cell has made of it
        self._capture.begin(output)
        error: BaseException | None = None
        result: Any = None
        shown: tuple[str, ...] = ()
        try:
            self._may_interrupt = True
            if request.cell == self._skipped:
                self._was_interrupted = True
                raise KeyboardInterrupt  # it came before the cell
            self._group.form(request.groups)
            result = self._shell.run_cell(request.code, store_history=False, silent=False)
            error = result.error_before_exec or result.error_in_exec
        except BaseException as raised:  # noqa: BLE001 - a cell ends no session
            error = raised
        finally:
            self._may_interrupt = False
            if os.getpid() != self._pid:
                os._exit(0)  # a process that the cell has forked, at its end
        try:
            if error is not None:
                shown = tuple(self._shell.told_traceback or traceback.format_exception(error))
            self._shell.told_traceback = ()
            self._capture.end()
        except KeyboardInterrupt:
            pass  # of an interrupt that came as the cell ended
        if result is not None and result.error_in_exec is not None:
            self._failed_cell = request.cell
        done = self._done(error, shown, time.perf_counter() - begun_s)
        self._last_active_s = time.monotonic()
        self._running = None
        self.has_news.set()
        output.add(done, TEXTS_SHOWN)

    def _done(
        self, error: BaseException | None, shown: tuple[str, ...], took_s: float
    ) -> Callable[[int], Done]:
        end: End = "ok"
        if error is not None:
            end = "interrupted" if self._was_interrupted else "error"
        if isinstance(error, SystemExit):
            error = SystemExit(f"the cell called sys.exit({error.code!r})")
            shown = ()
        line = self._line_of(error)
        is_broken = self._group.is_broken

        def made(number: int) -> Done:
            return Done(
                rank=self.rank,
                number=number,
                end=end,
                took_s=took_s,
                error=type(error).__name__ if error is not None else "",
                message=shortened(str(error)) if error is not None else "",
                traceback=tuple(map(shortened, shown[-LINES_SHOWN:])),
                line=line,
                is_broken=is_broken,
            )

        return made

    def _line_of(self, error: BaseException | None) -> int | None:
        if isinstance(error, SyntaxError) and not error.__traceback__:
            return error.lineno
        found = None
        for frame, line in traceback.walk_tb(error.__traceback__ if error else None):
            if self._is_of_cell(frame.f_code):
                found = line
        return found

    def _place(self, frame: FrameType) -> tuple[int | None, str, str]:
        """Return the line of the cell that a frame stands in, its text, and the function of
        ``torch.distributed`` that was called there, if one was.
        """
        call = ""
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if self._is_of_cell(code):
                import linecache

                return at.f_lineno, linecache.getline(code.co_filename, at.f_lineno).strip(), call
            if any(part in code.co_filename for part in DISTRIBUTED) and code.co_name != "wrapper":
                call = code.co_name
            at = at.f_back
        return None, "", call

    def _is_of_cell(self, code: CodeType) -> bool:
        return code.co_filename in self._shell.compile._filename_map  # noqa: SLF001 - as ipykernel does

    # Called by cells.

    def ask(self, prompt: object = "") -> str:
        """Ask the driver for a line, in place of ``input``.

        Raises:
            EOFError: it is not a cell that asks.
        """
        output = self._running
        if output is None or threading.current_thread() is not threading.main_thread():
            raise EOFError("only the running cell can ask for input")
        self._capture.flush()
        self._asks = True
        try:
            output.add(lambda number: Asked(self.rank, number, shortened(str(prompt))), TEXTS_SHOWN)
            answer = self._answers.get()
            if self._was_interrupted:
                raise KeyboardInterrupt
            return answer
        finally:
            self._asks = False

    def show(self, **fields: Any) -> None:
        """Add what a cell shows, after all that it has written."""
        output = self._running
        if output is None:
            return
        self._capture.flush()
        shown = Shown(self.rank, 0, **fields)
        size = len(msgspec.msgpack.encode(shown))
        if size > KEPT_BYTES:
            text = f"<{size_text(size)}: not shown, since it is more than {size_text(KEPT_BYTES)}>"
            shown = msgspec.structs.replace(shown, data={"text/plain": text}, metadata={})
            size = len(text)
        output.add(lambda number: msgspec.structs.replace(shown, number=number), size)


def shortened(text: str) -> str:
    """Return the begin of a text that is too long to be read."""
    if len(text) <= CHARACTERS_SHOWN:
        return text
    return f"{text[:CHARACTERS_SHOWN]} … ({len(text)} characters)"


def _as_sent(data: Any) -> dict[str, object]:
    """Return a bundle by MIME type as Jupyter sends it: bytes in base64."""
    from ipykernel.jsonutil import encode_images, json_clean

    found: dict[str, object] = json_clean(encode_images(data or {}))
    return found


def _shell(names: dict[str, Any], owner: SessionShell) -> Any:
    """Return an IPython shell that shows what its cells show as events of a session."""

    class Publisher(DisplayPublisher):  # type: ignore[misc]
        def publish(
            self,
            data: Any,
            metadata: Any = None,
            *_: Any,
            transient: Any = None,
            update: bool = False,
            **__: Any,
        ) -> None:
            owner.show(
                data=_as_sent(data),
                metadata=_as_sent(metadata),
                identity=str((transient or {}).get("display_id", "")),
                is_update=update,
            )

        def clear_output(self, *_: Any, **__: Any) -> None:
            owner.show(clears=True)

    class Hook(DisplayHook):  # type: ignore[misc]
        def start_displayhook(self) -> None:
            pass

        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            owner.show(data=_as_sent(format_dict), metadata=_as_sent(md_dict), is_result=True)

        def finish_displayhook(self) -> None:
            pass

    class Shell(InteractiveShell):  # type: ignore[misc]
        told_traceback: tuple[str, ...] = ()

        def _showtraceback(self, _: Any, __: Any, stb: Any) -> None:
            self.told_traceback = tuple(stb)

        def ask_exit(self) -> None:
            pass  # the session ends by stop

        def enable_gui(self, _: Any = None) -> None:
            pass  # a rank has no windows

    os.environ.setdefault("MPLBACKEND", INLINE)
    # What IPython says of sys.exit is true of its own prompt only.
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)
    config = Config()
    config.HistoryManager.enabled = False  # it is a database in the user's home
    shell = Shell.instance(
        config=config,
        user_ns=names,
        display_pub_class=Publisher,
        displayhook_class=Hook,
        history_length=0,
        cache_size=0,
    )
    shell.Completer.use_jedi = False
    return shell
