"""Uneven batches in torch's DataLoader, with empty ones among them."""

import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

import wagma.data

SIZE = 23
DATA = TensorDataset(torch.arange(SIZE), torch.randn(SIZE, 3, 2, dtype=torch.float64))
Pair = namedtuple("Pair", ["image", "label"])


def sampler(rank: int, batches: tuple[int, ...] = (4, 0, 3), **options: Any) -> Any:
    return wagma.data.UnevenBatchSampler(DATA, batches, rank, seed=2, **options)


def loader(batch_sampler: Any, kind: Any = DataLoader, **options: Any) -> Any:
    return kind(DATA, batch_sampler=batch_sampler, collate_fn=wagma.data.collate(DATA), **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_load_every_sample_once(workers: int) -> None:
    """Also twice with the same workers."""
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    samplers = [sampler(rank) for rank in range(3)]
    loaders = [loader(own, **options) for own in samplers]
    orders = []
    for epoch in range(2):
        for own in samplers:
            own.set_epoch(epoch)
        assert [len(each) for each in loaders] == [4, 4, 4]
        steps = list(zip(*loaders, strict=True))
        found = [index for step in steps for indices, _ in step for index in indices.tolist()]
        assert sorted(found) == list(range(SIZE))
        orders.append(found)
        for indices, images in (batch for step in steps for batch in step):
            assert indices.dtype == torch.int64
            assert images.dtype == torch.float64
            assert images.shape == (len(indices), 3, 2)
            assert torch.equal(images, DATA.tensors[1][indices])
        assert [len(step[1][0]) for step in steps] == [0] * 4
    assert orders[0] != orders[1]


def test_a_state_leaves_out_what_workers_have_ahead() -> None:
    own = sampler(0)
    trained = []
    for step, (indices, _) in enumerate(loader(own, num_workers=2)):
        trained += indices.tolist()
        if step == 1:
            break
    assert own.next_step > 2, "the workers are ahead"
    with pytest.raises(ValueError, match="step 2 of epoch 0 was drawn already"):
        own.set_batches([3, 1, 3], 2)
    state = own.state_dict(steps=2)
    others = [sampler(rank) for rank in (1, 2)]
    trained += [i for other in others for batch in list(other)[:2] for i in batch]
    pair = [sampler(rank, (5, 2)) for rank in range(2)]
    for resumed in pair:
        resumed.load_state_dict(state)
        trained += [i for indices, _ in loader(resumed, num_workers=2) for i in indices.tolist()]
    assert sorted(trained) == list(range(SIZE))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*deprecated, please do not call:UserWarning")  # torchdata's
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_data_loader(workers: int) -> None:
    """torchdata's loader asks for the state by itself."""
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    whole = [indices.tolist() for indices, _ in loader(sampler(0), kind, num_workers=workers)]
    first = loader(sampler(0), kind, num_workers=workers)
    iterator = iter(first)
    begun = [next(iterator)[0].tolist() for _ in range(2)]
    state = first.state_dict()
    own = sampler(0)
    resumed = loader(own, kind, num_workers=workers)
    resumed.load_state_dict(state)
    own.set_epoch(0)
    assert [*begun, *(indices.tolist() for indices, _ in resumed)] == whole
    own.set_epoch(1)
    assert len(list(resumed)) == 4


# ---- empty batches -------------------------------------------------------------------------------


def empty(*samples: Any, **options: Any) -> Any:
    return wagma.data.collate(samples, **options)([])


def test_empty_batches_have_the_shapes_of_others() -> None:
    sample = {
        "image": np.zeros((2, 3), np.float32),
        "label": 7,
        "pair": (torch.zeros(4, dtype=torch.int8), 0.5),
        "name": "first",
        "words": ["a", "b"],
    }
    found, one = empty(sample), wagma.data.collate([sample])([sample])
    assert found.keys() == one.keys()
    for part, whole in (
        (found["image"], one["image"]),
        (found["label"], one["label"]),
        *zip(found["pair"], one["pair"], strict=True),
    ):
        assert (part.dtype, part.shape) == (whole.dtype, (0, *whole.shape[1:]))
    assert (found["name"], list(map(list, found["words"]))) == ([], [[], []])
    image, label = empty(Pair(torch.zeros(2), 1))
    assert (image.shape, label.shape) == ((0, 2), (0,))
    assert empty(3).shape == (0,)
    assert empty("word") == []


def test_an_empty_batch_is_made_anew() -> None:
    make = wagma.data.collate([{"x": torch.zeros(3)}])
    first = make([])
    first["y"] = 1
    assert make([]).keys() == {"x"}


def test_a_collate_fn_of_the_user() -> None:
    def stack(samples: list[Any]) -> Any:
        return Pair(np.stack([image for image, _ in samples]), [label for _, label in samples])

    make = wagma.data.collate([(np.zeros(5), "a"), (np.ones(5), "b")], stack)
    assert make([(np.ones(5), "b")] * 2).image.shape == (2, 5)
    none = make([])
    assert (type(none), none.image.shape, none.label) == (Pair, (0, 5), [])


def test_empty_batches_of_a_subset_go_through_a_model() -> None:
    subset = Subset(DATA, range(5, 20))
    own = wagma.data.UnevenBatchSampler(subset, [5, 0], 1, seed=1)
    batches = DataLoader(subset, batch_sampler=own, collate_fn=wagma.data.collate(subset))
    model = torch.nn.Linear(2, 4).double()
    for _, images in batches:
        output = model(images)
        assert output.shape == (0, 3, 4)
        output.sum().backward()
    assert torch.count_nonzero(model.weight.grad) == 0


def test_it_goes_to_workers_that_are_spawned() -> None:
    make = pickle.loads(pickle.dumps(wagma.data.collate(DATA)))
    assert make([])[1].shape == (0, 3, 2)


class Lines(IterableDataset[str]):
    def __iter__(self) -> Any:
        yield from "abc"


def test_what_can_not_be_made_empty() -> None:
    with pytest.raises(TypeError, match="which has no __getitem__: dataset"):
        wagma.data.collate(object())
    with pytest.raises(TypeError, match="no dimension for samples"):
        empty(1, collate_fn=lambda samples: torch.tensor(float(len(samples))))
    with pytest.raises(TypeError, match="a batch holds 1, and how to make it empty"):
        empty(1, collate_fn=len)
    with pytest.raises(TypeError, match="which has no length: the number of samples"):
        wagma.data.UnevenBatchSampler(Lines(), [1], 0, seed=1)  # type: ignore[arg-type]
