"""`legenda evaluate`: predictions for a split and their scores; or captions for COCO's server."""

from collections.abc import Sequence

from legenda.cli._evaluate_options import Options
from legenda.cli.options import parse
from legenda.errors import ConfigError


def run(arguments: Sequence[str]) -> None:
    """Write the files and print the scores, or the paths of the files for the server."""
    options = parse(Options, arguments, "evaluate")
    options.reject_unused()
    if options.submission_dir is None and (options.test_features or options.algorithm):
        raise ConfigError("--test-features and --algorithm are for --submission-dir; name its folder too")
    from legenda.evaluation.evaluate import caption_coco_server, evaluate_captions, evaluate_task
    from legenda.evaluation.predict import reject_captioner_options
    from legenda.evaluation.results import choose_path, evaluation_path
    from legenda.evaluation.runs import CaptionerRun, load_captioner_run, load_run, resolve_data
    from legenda.terminal import progress_bar

    first, split, search = load_run(options.run, options).load_stage(options.stage), options.split, options.select()
    path = evaluation_path(first.folder, split, ensemble=bool(options.others), stage=options.stage)
    path = choose_path(path, options.run, options.out)
    if not isinstance(first, CaptionerRun):
        reject_captioner_options(first, options, ("others", "annotations", "features", "metrics", "repeats"))
        reject_captioner_options(first, options, search.settings().keys() - {"beam_size"})
        server = {"submission_dir": options.submission_dir, "algorithm": options.algorithm}
        found = evaluate_task(first, split, search.beam_size, progress_bar, path=path, **server)
        print(f"{found.format_scores(split)}\n{found.examples} examples of {split}; predictions in {found.path}")
        return
    members = [load_captioner_run(folder, options).load_stage(options.stage) for folder in options.others]
    if options.submission_dir is not None:
        if options.out is not None:
            raise ConfigError("--out is not for --submission-dir, which names the folder of all files; leave it out")
        files = caption_coco_server(
            first, members, options.submission_dir, options.test_features, options.algorithm, search, progress_bar
        )
        print("\n".join(f"{path}: {count} images" for path, count in files.items()))
        return
    data = resolve_data(first, options.annotations, options.features)
    collapse = None if options.repeats == "auto" else options.repeats == "collapse"
    found = evaluate_captions(
        first, members, data, split, search, options.metrics, progress_bar, collapse_repeats=collapse, path=path
    )
    print(found.format_scores(split))
    print(f"{found.examples} images of {split}, {search.describe()}; captions in {found.path}")
