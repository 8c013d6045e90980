from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell

import jupyter_mntrain
from jupyter_mntrain.cluster.files.job_files import WrittenFiles
from jupyter_mntrain.launch.files.records import JobFiles, LargeFile
from jupyter_mntrain.metrics.page_entries import JOB_MIME
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.records.node import NodeView
from tests.hostile import HOSTILE, STYLING, assert_safe
from tests.notebook.conftest import Notebook, begin_shell, end_shell
from tests.standin.cluster import StandInCluster, node
from tests.wording import says

RECIPE = '[model]\npreset = "llama-tiny"\n'


@pytest.fixture
def plain_shell():
    shell = begin_shell(InteractiveShell)
    yield shell
    end_shell(shell)


def test_loading_says_one_line_and_begins_to_look(cluster, monkeypatch):
    monkeypatch.setenv("MNTRAIN_CLUSTER", "lab")
    monkeypatch.setenv("MNTRAIN_AGENTS", "10.0.0.1:8765")
    cluster._nodes = ()
    book = Notebook(cluster)
    said = book.load()
    assert len(said.splitlines()) == 1
    assert "of cluster lab" in said
    assert book.opened == [("lab", ("10.0.0.1:8765",))]
    book.close()


def test_a_bad_cluster_name_does_not_stop_the_extension_from_loading(monkeypatch):
    def connect(name, addresses):
        raise SpecError(f"{name!r} is not a cluster name", fix="use letters")

    from jupyter_mntrain.notebook.extension import Extension

    monkeypatch.setenv("MNTRAIN_CLUSTER", "a b!")
    book = Notebook(StandInCluster())
    book.extension = Extension(book.shell, connect)
    assert "'a b!' is not a cluster name" in book.load()
    assert "usage" in book.words("%mntrain --help")
    book.close()


def test_the_magic_and_the_command_line_say_the_same(notebook):
    assert "eno1 10.0.0.1/24" in notebook.words("%mntrain nodes")
    assert "launch" in notebook.words("%mntrain")


def test_the_version(notebook):
    assert notebook.words("%mntrain --version") == f"mntrain {jupyter_mntrain.__version__}"


def test_a_traceback_quotes_other_exceptions_safely(notebook, monkeypatch):
    def fail(*_, **__):
        try:
            raise ValueError(HOSTILE)
        except ValueError as error:
            raise MntrainError(HOSTILE, fix=HOSTILE) from error

    monkeypatch.setattr("jupyter_mntrain.notebook.magics.run", fail)
    result = notebook.run("%mntrain nodes --traceback")
    shown = result.stdout + result.stderr
    assert "ValueError" in shown
    assert "Traceback" in shown
    assert_safe(STYLING.sub("", shown))


@pytest.mark.wording
def test_an_interrupt_is_one_line(notebook, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("jupyter_mntrain.notebook.magics.run", stopped)
    result = notebook.run("%mntrain nodes")
    shown = STYLING.sub("", result.stdout + result.stderr).strip()
    assert len(shown.splitlines()) == 1
    assert "%mntrain jobs" in shown


@pytest.mark.wording
@pytest.mark.parametrize("line", ["agent", "agent join", "agent run --port 1", "agent --help"])
def test_an_agent_is_started_in_a_terminal(notebook, line):
    error = notebook.run(f"%mntrain {line}").error_in_exec
    assert isinstance(error, SpecError)
    assert "not inside a notebook" in error.cause
    assert error.fix == "in a terminal there: mntrain agent join"


def test_tables_are_html_and_text(notebook):
    (output,) = notebook.run("%mntrain jobs").outputs
    assert set(output.data) == {"text/html", "text/plain"}
    assert "<script" not in output.data["text/html"]


def test_json_is_data_on_the_page(notebook):
    (output,) = notebook.run("%mntrain status --json").outputs
    assert "'state': 'running'" in output.data["text/plain"]


@pytest.mark.wording
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("%mntrain nodse", "use nodes"),
        ("%mntrain launch gone.toml", "gone.toml: no such recipe or script"),
        ("%mntrain status j-nope", "no reachable node knows job j-nope. Fix: see %mntrain jobs"),
        ("%mntrain launch j-0000", "Fix: see %mntrain jobs"),
        ("%mntrain agent run", "in a terminal there: mntrain agent"),
        ("%%mntrain launch\n[model]\nlayerz = 3", "model.layerz"),
        ("%%mntrain launch\nimport os\ndef f(:\n  pass", "line 3"),
        ("%%mntrain launch\n# nothing yet", "empty"),
        ("%%mntrain nodes\nx", "takes no cell"),
    ],
)
def test_bad_input_is_one_line_without_a_traceback(notebook, cluster, code, told):
    result = notebook.run(code)
    assert isinstance(result.error_in_exec, MntrainError)
    shown = result.stdout + result.stderr
    assert told in shown
    assert "Traceback" not in shown
    assert len(shown.strip().splitlines()) == 1
    assert cluster.launches == []


def test_the_traceback_is_shown_when_it_is_asked_for(notebook):
    result = notebook.run("%mntrain status j-nope --traceback")
    assert "Traceback" in result.stdout + result.stderr


def test_a_program_can_catch_the_error(notebook):
    code = (
        "from jupyter_mntrain import MntrainError\n"
        "try:\n    get_ipython().run_line_magic('mntrain', 'nodse')\n"
        "except MntrainError as error:\n    print('caught', error.fix)"
    )
    assert says("caught use nodes", notebook.run(code).stdout)


def test_a_cell_launches_and_returns_at_once(notebook, cluster):
    result = notebook.run(f"%%mntrain launch --name mine\n{RECIPE}")
    assert result.success
    (spec,) = cluster.launches
    assert spec.name == "mine"
    assert spec.files == {"recipe.toml": f"\n{RECIPE}"}
    said = [output.data["text/plain"] for output in result.outputs if "text/plain" in output.data]
    assert any("the recipe in the cell" in one for one in said)
    assert notebook.extension.updater._due
    assert result.result is cluster.to_launch
    # Named before a node is asked to start it, for a kernel that is killed then, until it is shown.
    begun, view = (one for one in result.outputs if JOB_MIME in one.data)
    named = [one.data[JOB_MIME]["job"]["job_id"] for one in (begun, view)]
    assert named == [cluster.to_launch.id] * 2
    (left,) = (one for one in result.outputs if one.update and one.transient == begun.transient)
    assert left.data == {"text/plain": ""}
    assert result.outputs.index(view) < result.outputs.index(left)


def test_a_launch_that_is_refused_leaves_no_job_in_its_cell(notebook, cluster):
    cluster.refuses = RefusedError("GPU 0 was taken", node="wopr")
    begun, left = notebook.run(f"%%mntrain launch\n{RECIPE}").outputs[-2:]
    assert JOB_MIME in begun.data
    assert (left.data, left.transient) == ({"text/plain": ""}, begun.transient)


def test_a_comment_above_the_cell_magic_is_no_obstacle(notebook, cluster):
    assert notebook.run(f"# a note\n\n%%mntrain launch\n{RECIPE}").success
    assert len(cluster.launches) == 1


def test_code_above_the_cell_magic_stays_ipythons_own_error(notebook):
    assert not notebook.run("x = 1\n%%mntrain launch\n[train]").success


def test_the_job_is_kept_in_a_variable_or_assigned(notebook, cluster):
    notebook.run(f"%%mntrain launch --variable mine\n{RECIPE}")
    notebook.run("other = %mntrain attach j-7f3a")
    assert notebook.shell.user_ns["mine"] is cluster.to_launch
    assert notebook.shell.user_ns["other"] is cluster.job("j-7f3a")


def test_an_old_name_is_taken_in_a_cell_too_and_told_on_stderr(notebook, cluster):
    result = notebook.run(f"%%mntrain launch -o mine\n{RECIPE}")
    assert notebook.shell.user_ns["mine"] is cluster.to_launch
    assert says("-o is now --variable", result.stderr)
    assert len(result.stderr.splitlines()) == 1
    assert not notebook.run(f"%%mntrain launch --variable mine\n{RECIPE}").stderr


def test_a_variable_is_left_alone_where_there_is_no_job(notebook, cluster):
    notebook.run(f"%%mntrain launch --variable mine\n{RECIPE}")
    notebook.run(f"%%mntrain launch --dry-run --variable mine\n{RECIPE}")
    assert notebook.shell.user_ns["mine"] is cluster.to_launch


def test_attach_in_the_notebook_returns_at_once_and_wait_stays(notebook, cluster):
    assert notebook.run("%mntrain attach").success
    (job,) = cluster._jobs.values()
    job.become("succeeded")
    result = notebook.run("%mntrain attach --wait")
    assert result.success, result.stdout
    pictures = [output for output in result.outputs if "image/png" in output.data]
    assert pictures
    assert "✓ succeeded" in pictures[-1].data["text/plain"]


class RequestedKernel:
    """What a client asked it for."""

    def __init__(self, *, asks: bool, **metadata: str) -> None:
        self.request = {"content": {"allow_stdin": asks}, "metadata": metadata}

    def get_parent(self, _channel: str):
        return self.request


CONSOLE = RequestedKernel(asks=True)
"""jupyter console: it shows no output again, and no widget."""


def test_a_console_follows_a_job_in_lines_that_end_with_how_it_ended(
    notebook, cluster, monkeypatch
):
    monkeypatch.setattr(notebook.shell, "kernel", CONSOLE, raising=False)
    for line in ("%mntrain attach", f"%%mntrain launch\n{RECIPE}"):
        outputs = notebook.run(line).outputs
        assert not [one for one in outputs if one.update or JOB_MIME in one.data]
        assert "attach --wait" in outputs[-1].data["text/plain"]
    for job in (*cluster._jobs.values(), cluster.to_launch):
        job.become("succeeded")
    for line in ("%mntrain attach --wait", f"%%mntrain launch --wait\n{RECIPE}"):
        outputs = notebook.run(line).outputs
        assert not [one for one in outputs if one.update or JOB_MIME in one.data]
        assert "✓ succeeded" in outputs[-1].data["text/plain"]
    assert not notebook.extension.updater._due


@pytest.mark.parametrize(
    "kernel", [RequestedKernel(asks=True, cellId="7f3a"), RequestedKernel(asks=False)]
)  # a page, and papermill
def test_a_cell_that_waits_ends_with_the_picture_and_what_was_written(
    notebook, cluster, monkeypatch, kernel
):
    notebook.run("%mntrain attach")
    (job,) = cluster._jobs.values()
    job.become("succeeded")
    cluster.files.written = WrittenFiles({"wopr": JobFiles("/w", (LargeFile("a.pt", 9),), 1, 9)})
    monkeypatch.setattr(notebook.shell, "kernel", kernel, raising=False)
    *_, drawn, written = notebook.run("%mntrain attach --wait").outputs
    assert "✓ succeeded" in drawn.data["text/plain"]
    assert "image/png" in drawn.data
    assert f"pull {job.id}" in written.data["text/plain"]


def test_a_panel_that_a_program_opens_is_finished_text(notebook, monkeypatch):
    assert "widget" in "".join(notebook.run("%mntrain panel").outputs[0].data)
    monkeypatch.setattr(notebook.shell, "kernel", RequestedKernel(asks=False), raising=False)
    (output,) = notebook.run("%mntrain panel").outputs
    assert says("a program runs this notebook", output.data["text/plain"])


def test_waiting_for_a_job_that_failed_stops_run_all(cluster, failed_cluster, monkeypatch):
    book = Notebook(failed_cluster)
    book.load()
    result = book.run("%mntrain attach --wait")
    assert isinstance(result.error_in_exec, MntrainError)
    shown = result.stdout + result.stderr
    assert says("muthur: rank 2: eno1 lost its link", shown)
    assert any("image/png" in output.data for output in result.outputs)
    book.close()


def test_plot_is_a_picture_under_the_cell(notebook):
    (output,) = notebook.run("%mntrain plot").outputs
    assert "image/png" in output.data
    assert output.metadata["image/png"]["alt"]


@pytest.mark.parametrize("kernel", [CONSOLE, RequestedKernel(asks=True, cellId="7f3a")])
def test_a_plan_is_a_picture_in_a_cell_and_text_in_a_console(notebook, monkeypatch, kernel):
    monkeypatch.setattr(notebook.shell, "kernel", kernel, raising=False)
    outputs = notebook.run(f"%%mntrain plan\n{RECIPE}").outputs
    assert any("image/png" in one.data for one in outputs) is (kernel is not CONSOLE)
    text = "\n".join(one.data["text/plain"] for one in outputs)
    assert ("█" in text) is (kernel is CONSOLE)


@pytest.mark.slow
def test_unloading_takes_everything_away(cluster):
    book = Notebook(cluster)
    shell = book.shell

    def state():
        return (
            "mntrain" in shell.magics_manager.magics["line"],
            "mntrain" in shell.magics_manager.magics["cell"],
            len(shell.Completer.custom_matchers),
            len(shell.input_transformers_cleanup),
            len(shell.events.callbacks["pre_run_cell"]),
            len(shell.display_formatter.ipython_display_formatter.type_printers),
        )

    before = state()
    for _ in range(2):
        book.load()
        book.run("%mntrain attach")
        book.extension.unload()
        assert state() == before
    assert cluster.closed == 2
    assert not [t for t in threading.enumerate() if t.name == "mntrain-live-view"]
    book.close()


def test_load_ext_twice_is_once(plain_shell, monkeypatch):
    import jupyter_mntrain
    from jupyter_mntrain.notebook import extension

    monkeypatch.setattr(extension, "connect", lambda *_: StandInCluster())
    monkeypatch.setattr(
        extension.Extension.__init__, "__defaults__", (lambda *_: StandInCluster(),)
    )
    for _ in range(2):
        jupyter_mntrain.load_ipython_extension(plain_shell)
    assert len(plain_shell.Completer.custom_matchers) == 1
    jupyter_mntrain.unload_ipython_extension(plain_shell)
    jupyter_mntrain.unload_ipython_extension(plain_shell)
    assert plain_shell.Completer.custom_matchers == []


def test_load_ext_shows_the_nodes_and_those_that_have_not_answered():
    late = NodeView(address="10.0.0.9:8765", found_by="typed", liveness="connecting")
    for is_driver in (True, False):
        cluster = StandInCluster([node("wopr", 1), late])
        cluster.is_driver = is_driver
        book = Notebook(cluster, InteractiveShell)
        said = book.load()
        assert ("wopr" in said) == ("10.0.0.9:8765" in said) == is_driver
        book.close()


def test_a_terminal_gets_words_and_is_told_why(cluster):
    book = Notebook(cluster, InteractiveShell)
    book.load()
    result = book.run(f"%%mntrain launch\n{RECIPE}")
    assert result.success
    assert "attach" in result.stdout
    assert not book.extension.updater._due
    result = book.run("%mntrain plot")
    assert says("a terminal shows no pictures", result.stdout + result.stderr)
    book.close()


def test_importing_the_room_is_quick_and_draws_nothing():
    code = (
        "import sys; import jupyter_mntrain.notebook, jupyter_mntrain.notebook.extension;"
        "assert not {'torch', 'matplotlib', 'numpy', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
