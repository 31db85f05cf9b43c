"""What the methods and metrics of the benchmarks are called."""

from darkbayes.report import Names

FITS = Names(
    {"sgld": "teacher", "sgd": "plug-in network", "gp": "Gaussian process", "mlp": "MLPClassifier"},
    {
        "gain": "log likelihood above logistic regression",
        "seconds": "seconds",
        "file_apart": "largest difference of one file from the two steps",
    },
)
"""Of `fits` and `backbone`, whose teacher is that of a fit."""

NAMES = Names(
    methods={
        "sgld": "SGLD",
        "psgld": "pSGLD",
        "psgld with gamma": "pSGLD with its Gamma term",
        "sghmc": "SGHMC",
        "scale-adapted sghmc": "SGHMC, scale-adapted",
        "sgnht": "SG-NHT",
        "baoa": "BAOA",
        "sgfs": "SGFS, diagonal",
        "sgfs full": "SGFS, full",
        "sgrld": "SGRLD",
        "fisher_sgld": "Fisher SGLD",
        "fisher_sgld with momentum": "Fisher SGLD with momentum",
        "sgld with svrg": "SGLD with SVRG",
        "mclmc": "MCLMC, all data",
        "adjusted mclmc": "MCLMC, adjusted, all data",
    },
    metrics={
        "us_per_step": "microseconds per step",
        "speedup": "times as fast",
        "peak_rss_mb": "peak memory (MB)",
        "rss_ratio": "ratio of peak memory",
        "bit_identical": "same bits as the uninterrupted run (1: yes)",
        "stray_files": "files that should not be there",
        "kills_that_cut_a_checkpoint_short": "kills that cut a checkpoint short",
        "done_at_last_kill": "share of the run done at the last kill",
        "kl_toy2d_auto": "KL(NUTS || method), 2-D toy, auto",
        "kl_toy2d_tuned": "2-D toy, tuned",
        "kl_boston_auto": "Boston, auto",
        "kl_boston_tuned": "Boston, tuned",
        "gain_toy2d": "times fewer gradients than SGLD, 2-D toy",
        "gain_boston": "times fewer gradients than SGLD, Boston",
        "gain_toy2d_time": "times less time than SGLD, 2-D toy",
        "gain_boston_time": "times less time than SGLD, Boston",
        "inflation_0.1": "variance inflated at stiffness 0.1 (%)",
        "inflation_0.5": "at stiffness 0.5 (%)",
        "inflation_1.0": "at stiffness 1 (%)",
        "kl_student": "KL(NUTS || student)",
        "kl_teacher": "KL(NUTS || teacher)",
        "cpu_s": "processor seconds",
        "compilations": "programs compiled",
        "import_s": "seconds",
        "seconds_over": "seconds more",
        "rows": "rows predicted",
        "rows_fitted": "rows",
        "seconds": "seconds",
        "times_in_memory": "times the steps a second of rows in memory",
        "mb_per_s": "MB a second",
        "times_first_release": "times the MB a second of 0.1",
        "times_less_cpu": "times less processor time than 0.1",
        "share_of_pyarrow": "share of pyarrow's, reading and writing alone",
        "order_kept": "in their order (1: yes)",
        "bad_rows_found": "bad rows reported by their lines",
        "size_ratio": "times the bytes of the parameters in float32",
        "latency_us": "microseconds for one row",
        "latency_ratio": "times the student's time",
        "log_likelihood_lost": "log likelihood lost a row (nats)",
        "errors": "requests not answered well",
        "p50_ms": "median latency (ms)",
        "p99_ms": "99th percentile of the latency (ms)",
        "requests_per_s": "requests a second",
        "wrong_requests": "wrong requests",
        "refused": "refused with the reason (4xx)",
        "server_errors": "failed (5xx but 503)",
        "p99_quiet_ms": "99th percentile of the latency without attackers (ms)",
        "p99_ratio": "times that without attackers",
        "attacks": "attacks that were answered",
        "memory_mb": "memory of all processes (MB)",
        "memory_ratio": "times the memory before",
        "recovery_s": "seconds to recover",
        "killed_percent": "killed (% of those that are no equivalents)",
    },
    tables={
        **dict.fromkeys(("gain_toy2d", "gain_boston"), "Gradients to come as close as SGLD ever does"),
        **dict.fromkeys(("gain_toy2d_time", "gain_boston_time"), "Time to come as close as SGLD ever does"),
        **dict.fromkeys(("inflation_0.1", "inflation_0.5", "inflation_1.0"), "What discretisation does to a Gaussian"),
    },
)


def names_of(experiment: str) -> Names:
    """What methods and metrics are called in the results of a benchmark."""
    return FITS if experiment in ("bench-fits", "bench-backbone") else NAMES
