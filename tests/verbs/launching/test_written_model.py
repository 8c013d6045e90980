"""``serve``, ``chat`` and ``generate`` of a script's job lead to the model that it wrote."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.cluster.files.job_files import WrittenFiles
from jupyter_mntrain.launch.files.records import JobFiles, LargeFile
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.verbs.launching.answering.written_model import model_folder


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["out/config.json", "out/model.safetensors", "out/checkpoint-9/config.json"], "out"),
        (["config.json", "model-00001-of-00002.safetensors"], "."),
        (
            [
                f"out/checkpoint-{step}/{name}"
                for step in (500, 1000, 90)
                for name in ("config.json", "pytorch_model.bin")
            ],
            "out/checkpoint-1000",
        ),
        (["out/config.json", "other/model.safetensors"], None),
        (["out/config.json", "out/optimizer.bin"], None),
        ([], None),
    ],
)
def test_the_model_is_that_of_the_output_directory(paths: list[str], folder: str | None):
    assert model_folder(paths) == folder


@pytest.mark.wording
@pytest.mark.parametrize(
    ("words", "verb"),
    [(["serve"], "serve"), (["chat"], "chat"), (["generate"], "chat")],
)
def test_the_error_leads_to_it(do, cluster, words, verb):
    (job,) = cluster._jobs.values()
    spec = JobSpec(entry=("train.py",), participants=job.view().spec.participants)
    view = msgspec.structs.replace(job.view(), spec=spec)
    job.view = lambda: view
    words = [*words, job.id, *(["Hello"] if words == ["generate"] else [])]

    def refused() -> str:
        with pytest.raises(SpecError) as caught:
            do(*words)
        assert caught.value.kind is Kind.BAD_COMMAND
        return caught.value.fix

    assert f"{verb} DIR --node NODE" in refused()
    names = ("config.json", "model.safetensors", "tokenizer.json")
    for count, has_tokenizer in ((3, True), (2, False)):
        files = tuple(LargeFile(f"my out/{name}", 10) for name in names[:count])
        cluster.files.written = WrittenFiles({"muthur": JobFiles("/jobs/work", files, count, 30)})
        assert f"{verb} '/jobs/work/my out' --node muthur" in refused()
        assert ("tokenizer" in refused()) is not has_tokenizer
