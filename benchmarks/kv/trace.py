"""What three agents ask for: turns made from a seed; not who answers them, and how fast.

Each agent has a conversation that begins with the same system prompt. It goes on, mostly, and now
and then it does what agents and their users do:

    continue    a further message
    edit        an earlier message is changed, and asked again; what came after it is left behind
    revise      an earlier message is changed in place, and all that came after it stays
    regenerate  the last message once more, for another answer
    branch      another message after an earlier answer
    return      a conversation left behind by `edit` or `branch` goes on
    start       a new conversation, the first time and when the context is full

Answers are part of the prompts that follow them, so a trace names them by their turn; their
lengths are fixed, their tokens are those of the server that is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

WEIGHTS: Mapping[str, int] = {
    "continue": 60,
    "edit": 12,
    "revise": 5,
    "regenerate": 10,
    "branch": 7,
    "return": 6,
}
"""How often each kind of turn comes, beside `start`."""

_MAX_LEFT = 2  # conversations left behind that an agent may return to
_STAYS = 0.6  # probability that the next turn is the same agent's
_CHANGED_TOKENS = 8  # of an edited message


@dataclass(frozen=True)
class AnswerOf:
    """The answer of an earlier turn, as a part of a prompt."""

    turn: int


Piece = tuple[int, ...] | AnswerOf
"""A message's token ids, or an answer."""


@dataclass(frozen=True)
class Sizes:
    """How large a trace is, in tokens unless it says otherwise.

    Args:
        turns: of all agents together.
        agents: how many.
        system: the system prompt that all share.
        role: what each agent's own instructions add to it.
        message: least and most of a message; short ones are more frequent.
        answer: least and most of an answer.
        context: most of a prompt and its answer.
    """

    turns: int = 200
    agents: int = 3
    system: int = 2500
    role: int = 200
    message: tuple[int, int] = (30, 300)
    answer: tuple[int, int] = (12, 48)
    context: int = 8192


@dataclass(frozen=True)
class Turn:
    """One request.

    Args:
        number: from 0, over all agents.
        agent: whose.
        kind: of the words above.
        pieces: the prompt.
        num_answer_tokens: exactly so many.
    """

    number: int
    agent: int
    kind: str
    pieces: tuple[Piece, ...]
    num_answer_tokens: int

    def prompt(self, answers: Sequence[Sequence[int]]) -> list[int]:
        """The token ids to send.

        Args:
            answers: of all turns before this one.
        """
        parts = (answers[p.turn] if isinstance(p, AnswerOf) else p for p in self.pieces)
        return [token for part in parts for token in part]


@dataclass
class _Agent:
    opening: tuple[int, ...]
    pieces: list[Piece] = field(default_factory=list)  # of the present conversation
    left: list[list[Piece]] = field(default_factory=list)

    @property
    def messages(self) -> list[int]:
        """Places of the messages, the opening apart."""
        return [i for i, p in enumerate(self.pieces) if i and not isinstance(p, AnswerOf)]

    def leave(self) -> None:
        """Keep the present conversation, for a return."""
        self.left = [*self.left, list(self.pieces)][-_MAX_LEFT:]


class TraceMaker:
    """Makes the turns of a trace.

    Args:
        words: token ids that texts are made of.
        sizes: of the trace.
        seed: the same one gives the same trace.
        begin: token ids that begin every prompt.
    """

    def __init__(
        self, words: Sequence[int], sizes: Sizes, seed: int = 0, begin: Sequence[int] = ()
    ) -> None:
        self._words, self._sizes = words, sizes
        self._random = random.Random(seed)
        system = (*begin, *self._text(sizes.system - len(begin)))
        self._agents = [_Agent((*system, *self._text(sizes.role))) for _ in range(sizes.agents)]
        self._answers: list[int] = []
        self._makers: dict[str, Callable[[_Agent], Sequence[Piece]]] = {
            "continue": self._continued,
            "edit": self._edited,
            "revise": self._revised,
            "regenerate": self._regenerated,
            "branch": self._branched,
            "return": self._returned,
        }

    def turns(self) -> Iterator[Turn]:
        """The turns, in their order."""
        current = 0
        for number in range(self._sizes.turns):
            if self._random.random() >= _STAYS:
                current = self._random.randrange(len(self._agents))
            agent = self._agents[current]
            kind, pieces = self._next(agent)
            agent.pieces = [*pieces, AnswerOf(number)]
            self._answers.append(self._random.randint(*self._sizes.answer))
            yield Turn(number, current, kind, tuple(pieces), self._answers[-1])

    def _next(self, agent: _Agent) -> tuple[str, Sequence[Piece]]:
        """What an agent does now, and the prompt that it makes of it."""
        if agent.pieces:
            kind = self._random.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
            if kind == "return" and not agent.left:
                kind = "continue"
            pieces = self._makers[kind](agent)
            if self._length(pieces) + self._sizes.answer[1] <= self._sizes.context:
                return kind, pieces
        agent.left.clear()
        return "start", [agent.opening, self._message()]

    def _continued(self, agent: _Agent) -> list[Piece]:
        return [*agent.pieces, self._message()]

    def _edited(self, agent: _Agent) -> list[Piece]:
        place = self._random.choice(agent.messages)
        agent.leave()
        return [*agent.pieces[:place], self._changed(agent.pieces[place])]

    def _revised(self, agent: _Agent) -> list[Piece]:
        place = self._random.choice(agent.messages)
        changed = self._changed(agent.pieces[place])
        return [*agent.pieces[:place], changed, *agent.pieces[place + 1 :], self._message()]

    def _regenerated(self, agent: _Agent) -> list[Piece]:
        return agent.pieces[:-1]

    def _branched(self, agent: _Agent) -> list[Piece]:
        places = [i for i, p in enumerate(agent.pieces) if isinstance(p, AnswerOf)]
        agent.leave()
        return [*agent.pieces[: self._random.choice(places) + 1], self._message()]

    def _returned(self, agent: _Agent) -> list[Piece]:
        other = agent.left.pop(self._random.randrange(len(agent.left)))
        agent.leave()
        return [*other, self._message()]

    def _message(self) -> tuple[int, ...]:
        low, high = self._sizes.message
        return self._text(round(low * (high / low) ** self._random.random()))

    def _changed(self, piece: Piece) -> tuple[int, ...]:
        """A message with a few words in its middle replaced."""
        assert not isinstance(piece, AnswerOf)
        start = self._random.randrange(len(piece))
        return (*piece[:start], *self._text(_CHANGED_TOKENS), *piece[start + _CHANGED_TOKENS :])

    def _text(self, length: int) -> tuple[int, ...]:
        return tuple(self._random.choices(self._words, k=length))

    def _length(self, pieces: Sequence[Piece]) -> int:
        return sum(self._answers[p.turn] if isinstance(p, AnswerOf) else len(p) for p in pieces)
