"""The intervals and tests beside those of statsmodels and scipy, which MORTAL does without."""

import numpy
import pytest
from scipy.stats import binomtest
from scipy.stats import bootstrap as scipys_bootstrap
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.proportion import proportion_confint

from mortal_steps.statistics.intervals import DRAWS, bootstrap, wilson
from mortal_steps.statistics.paired import mcnemar


def test_wilsons_interval_is_that_of_statsmodels_for_every_count():
    for problems in (1, 2, 5, 50, 200):
        counts = numpy.arange(problems + 1)
        lows, highs = proportion_confint(counts, problems, method="wilson")
        for count, low, high in zip(counts, lows, highs, strict=True):
            assert wilson(int(count), problems) == pytest.approx((low, high), abs=1e-14)


def test_mcnemars_p_is_that_of_statsmodels_and_scipy_for_every_table_below_30():
    for better in range(30):
        for worse in range(30 - better):
            table = [[0, better], [worse, 0]]
            if better + worse:
                found = mcnemar(better, worse)
                beside = binomtest(better, better + worse).pvalue
                assert found == pytest.approx(beside, rel=1e-12)
                assert found == pytest.approx(
                    statsmodels_mcnemar(table, exact=True).pvalue, rel=1e-12
                )


@pytest.mark.parametrize("seed", [(7, 120), (0, 0, 3)])
def test_the_bootstrap_is_that_of_scipy_to_the_digit(seed):
    for scores in (
        [i * i % 17 / 16 for i in range(60)],
        [0.25, 1.0, 0.5],
        [i / 99 for i in range(100)],
    ):
        found = scipys_bootstrap(
            (scores,),
            numpy.mean,
            n_resamples=DRAWS,
            method="percentile",
            rng=numpy.random.default_rng(seed),
        ).confidence_interval
        assert bootstrap(scores, seed) == pytest.approx((found.low, found.high), abs=1e-12)
