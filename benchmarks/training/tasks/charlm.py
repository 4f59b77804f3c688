"""The next character of Python's documentation: sentences of very different length.

As in the paper's Fig. 6, sentences of similar length make a batch, so that little is padded, and
batches differ in what they cost: from a few characters per sentence to 160.
"""

import re
from importlib import import_module

import numpy as np
import torch
from torch import nn

from .task import Batch, Task

# Characters of a sentence, and of a bucket the lengths that are put together.
SHORTEST, LONGEST, BUCKET = 8, 160, 16
SENTENCES = 4000
TESTS = 64

# Characters from space to ~ are 1 to 95, all others 96; 0 is behind the end of a sentence.
FIRST, OTHER, SYMBOLS = 31, 96, 97

WIDTH, HEADS = 32, 4


class _Model(nn.Module):
    """A Transformer of one layer that sees only what is before."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, WIDTH)
        self.places = nn.Embedding(LONGEST, WIDTH)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.out = nn.Linear(WIDTH, SYMBOLS)
        bias = torch.full((LONGEST, LONGEST), -torch.inf).triu(1)
        self.register_buffer("before", bias, persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next symbol at each place: [sentences, places, SYMBOLS]."""
        length = text.shape[1]
        x = self.symbols(text) + self.places.weight[:length]
        before = self.get_buffer("before")[:length, :length]
        scores: torch.Tensor = self.out(self.layer(x, src_mask=before, is_causal=True))
        return scores


class CharactersTask(Task):
    """Sentences of the language reference that comes with Python."""

    name = "charlm"
    measures = "test accuracy of the next character"

    def __init__(self, sentences: list[bytes], seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(sentences))
        texts = [_symbols(sentences[place]) for place in order[:SENTENCES]]
        self._tests = _pad(texts[:TESTS])
        self._train = sorted(texts[TESTS:], key=len)
        lengths = np.array([len(text) for text in self._train])
        self._bucket = -(-lengths // BUCKET)  # ascending
        self._mean_length = float(lengths.mean())

    def build_model(self, seed: int) -> nn.Module:
        """Make one layer of width 32, 20 thousand parameters."""
        torch.manual_seed(seed)
        return _Model()

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
        """Return the cross entropy of sentences of about one length, and its cost."""
        draw = np.random.default_rng(batch.key)
        bucket = self._bucket[draw.integers(len(self._train))]
        low, high = np.searchsorted(self._bucket, [bucket, bucket + 1])
        rows = draw.integers(low, high, size=batch.samples)
        text = _pad([self._train[row] for row in rows])
        scores = model(text[:, :-1]).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores, text[:, 1:].flatten(), ignore_index=0)
        return loss, text.shape[1] / self._mean_length

    def evaluate(self, model: nn.Module) -> float:
        """Share of the test sentences' characters, from the second one on, that are most likely."""
        with torch.no_grad():
            guessed = model(self._tests[:, :-1]).argmax(dim=2)
        following = self._tests[:, 1:]
        return float((guessed == following)[following != 0].double().mean())


def _symbols(sentence: bytes) -> torch.Tensor:
    codes = np.frombuffer(sentence, np.uint8).astype(np.int64) - FIRST
    return torch.from_numpy(np.where((codes >= 1) & (codes < OTHER), codes, OTHER))


def _pad(texts: list[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)


def load(seed: int) -> CharactersTask:
    """Return the sentences of ``pydoc_data.topics``, what ``help()`` shows of the language.

    Raises:
        ImportError: this Python comes without its documentation.
    """
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    sentences: dict[str, None] = {}  # in order, each once
    for topic in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[topic]):
            text = " ".join(paragraph.split())
            for sentence in re.split(r"(?<=[.:;]) (?=[A-Z])", text):
                if SHORTEST <= len(sentence) <= LONGEST:
                    sentences[sentence] = None
    return CharactersTask([text.encode("ascii", "replace") for text in sentences], seed)
