"""mortal_steps.system.retry: what failed is repeated, after the delays that were given."""

import itertools

import pytest

from mortal_steps.system.retry import backoff, retry, retry_async


class Flaky:
    """Fails so many times."""

    def __init__(self, failures, error=ConnectionError):
        self.left, self.error, self.calls = failures, error, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.left:
            raise self.error(f"attempt {self.calls}")
        return self.calls


def test_it_is_repeated_until_it_succeeds():
    noticed = []
    found = retry(Flaky(2), on=ConnectionError, delays_s=(0, 0, 0), notice=noticed.append)
    assert found == 3
    assert [str(error) for error in noticed] == ["attempt 1", "attempt 2"]


def test_the_last_error_is_raised_when_no_delay_is_left():
    work = Flaky(9)
    with pytest.raises(ConnectionError, match="attempt 3"):
        retry(work, on=ConnectionError, delays_s=(0, 0))


def test_another_error_is_raised_at_once():
    work = Flaky(1, KeyError)
    with pytest.raises(KeyError):
        retry(work, on=ConnectionError, delays_s=(0, 0))
    assert work.calls == 1


def test_it_is_given_up_where_the_next_delay_takes_too_long():
    work = Flaky(9)
    with pytest.raises(ConnectionError, match="attempt 2"):
        retry(work, on=ConnectionError, delays_s=(0, 60), for_s=10)


async def test_it_is_the_same_with_coroutines():
    work = Flaky(2)

    async def ask():
        return work()

    assert await retry_async(ask, on=ConnectionError, delays_s=(0, 0)) == 3


def test_delays_double_up_to_the_longest():
    assert list(itertools.islice(backoff(1.0, 5.0), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]
