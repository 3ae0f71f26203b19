"""Which of many bindings match a routing key, found word by word instead of one binding after the other."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class _Branch(Generic[T]):
    __slots__ = ("branches", "is_hash", "values")

    def __init__(self, is_hash: bool = False) -> None:
        self.branches: dict[str, _Branch[T]] = {}
        self.values: set[T] = set()
        self.is_hash = is_hash


class TopicTree(Generic[T]):
    """Patterns with the values bound under them; the same rules as `routing.matches`."""

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()

    def add(self, pattern: str, value: T) -> None:
        branch = self._root
        for word in _words(pattern):
            branch = branch.branches.setdefault(word, _Branch(word == "#"))
        branch.values.add(value)

    def discard(self, pattern: str, value: T) -> None:
        path, branch = [], self._root
        for word in _words(pattern):
            if word not in branch.branches:
                return
            path.append((branch, word))
            branch = branch.branches[word]
        branch.values.discard(value)
        for parent, word in reversed(path):
            child = parent.branches[word]
            if child.values or child.branches:
                return
            del parent.branches[word]

    def find(self, key: str) -> set[T]:
        words = _words(key)
        found: set[T] = set()
        todo, seen = [(self._root, 0)], set()
        while todo:
            branch, place = here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            if "#" in branch.branches:
                todo.append((branch.branches["#"], place))
            if place == len(words):
                found |= branch.values
                continue
            if branch.is_hash:
                todo.append((branch, place + 1))
            # In a key `*` and `#` are plain words, which only a wildcard can match.
            for word in ("*", words[place]):
                if word != "#" and word in branch.branches:
                    todo.append((branch.branches[word], place + 1))
        return found

    def __bool__(self) -> bool:
        return bool(self._root.branches or self._root.values)


def _words(text: str) -> list[str]:
    return text.split(".") if text else []
