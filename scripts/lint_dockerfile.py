"""What can be said of the Dockerfile without Docker; `make check` runs it.

    python scripts/lint_dockerfile.py [DOCKERFILE]

Asked for: base images with a version, a user other than root, a health check, commands as lists (a shell would swallow
the signals that stop a container), no ADD of addresses, and sources of COPY that are there and that .dockerignore lets
through.
"""

import fnmatch
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

KNOWN = re.compile(
    "ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR"
)


class Instruction(NamedTuple):
    """An instruction, its continued lines joined."""

    line: int
    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Its arguments without options such as ``--from=build``."""
        return [word for word in self.rest.split() if not word.startswith("--")]


def parse(text: str) -> list[Instruction]:
    r"""The instructions of a Dockerfile.

    >>> parse("# a comment\nRUN one \\\n# between\n  two\n")
    [Instruction(line=2, name='RUN', rest='one two')]
    """
    instructions, parts, start = [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        start = start if parts else number
        parts.append(content.removesuffix("\\").strip())
        if not content.endswith("\\"):
            name, _, rest = " ".join(parts).partition(" ")
            instructions.append(Instruction(start, name.upper(), rest.strip()))
            parts = []
    if parts:
        instructions.append(Instruction(start, "", "the last line is continued by nothing"))
    return instructions


def left_out(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore keeps a path from the build; the last pattern that fits it decides."""
    answer = False
    for pattern in patterns:
        if fnmatch.fnmatch(path, pattern.removeprefix("!").removeprefix("**/").strip("/")):
            answer = not pattern.startswith("!")
    return answer


def is_list(text: str) -> bool:
    """Whether a command is in exec form: a JSON list of strings."""
    try:
        words = json.loads(text)
    except ValueError:
        return False
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) for word in words)


def problems(text: str, root: Path) -> list[str]:
    """What is wrong with a Dockerfile that is built in the folder `root`, a line each."""
    ignore = root / ".dockerignore"
    lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.exists() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    instructions, answer, stages = parse(text), [], set()
    for instruction in instructions:
        answer += [f"line {instruction.line}: {problem}" for problem in _of_one(instruction, stages, root, patterns)]
        if instruction.name == "FROM" and len(instruction.words) == 3:
            stages.add(instruction.words[2])
    starts = [place for place, instruction in enumerate(instructions) if instruction.name == "FROM"]
    before = [one.name for one in instructions[: starts[0] if starts else None]]
    if not starts or set(before) - {"ARG"}:
        answer.append("FROM must come first, after ARG at most")
    return answer + _of_last_stage(instructions[starts[-1] :] if starts else [])


def _of_one(instruction: Instruction, stages: set[str], root: Path, patterns: list[str]) -> list[str]:
    _, name, rest = instruction
    words = instruction.words
    if not KNOWN.fullmatch(name):
        return [f"{name or rest} is not an instruction"]
    if not words:
        return [f"{name} says nothing"]
    if name == "FROM" and words[0] not in stages:
        tag = re.search(r":([^/:@]+)(@|$)", words[0])
        if "@sha256:" not in words[0] and (tag is None or tag[1] == "latest"):
            return [f"FROM {words[0]} may be another image tomorrow: name a version"]
    if name in ("CMD", "ENTRYPOINT") and not is_list(rest):
        return [f'{name} must be a list, as ["darkbayes", "serve"]']
    if name == "HEALTHCHECK" and rest.upper() != "NONE":
        command = re.search(r"\bCMD (.*)$", rest)
        if command is None or not is_list(command[1]):
            return ["HEALTHCHECK needs CMD and a list"]
    if name == "ADD" and any(re.match(r"(https?|git|ssh)[:@]", word) for word in words):
        return ["ADD of an address fetches what nobody has checked: fetch and check it in RUN, or COPY a file"]
    if name in ("COPY", "ADD"):
        return _of_copy(instruction, root, patterns)
    return []


def _of_copy(instruction: Instruction, root: Path, patterns: list[str]) -> list[str]:
    """Sources must be in the folder of the build, unless they come from another stage."""
    if "--from=" in instruction.rest:
        return []
    if len(instruction.words) < 2:
        return [f"{instruction.name} needs a source and a destination"]
    answer = []
    for source in instruction.words[:-1]:
        if ".." in Path(source).parts or not list(root.glob(source.strip("/"))):
            answer.append(f"{instruction.name} {source}: there is no such file beside the Dockerfile")
        elif left_out(source.strip("./"), patterns):
            answer.append(f"{instruction.name} {source}: .dockerignore leaves it out")
    return answer


def _of_last_stage(stage: list[Instruction]) -> list[str]:
    """What an image must say that is run."""
    last = {instruction.name: instruction for instruction in stage}
    answer = [f"the last stage has no {name}" for name in ("USER", "HEALTHCHECK") if name not in last]
    if "USER" in last and last["USER"].rest.split(":")[0] in ("root", "0"):
        answer.append("the last USER is root")
    if "HEALTHCHECK" in last and last["HEALTHCHECK"].rest.upper() == "NONE":
        answer.append("the last HEALTHCHECK is none")
    if not {"CMD", "ENTRYPOINT"} & last.keys():
        answer.append("the last stage has neither ENTRYPOINT nor CMD")
    return answer


def main() -> None:
    """Print what is wrong, and fail if anything is."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "Dockerfile")
    wrong = problems(path.read_text(encoding="utf-8"), path.parent)
    print("\n".join(f"{path}: {problem}" for problem in wrong) or f"{path.name}: nothing to say")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
