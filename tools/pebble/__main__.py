"""Command line: prepare, train, export, evaluate, questions."""

import argparse
import json
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SHIPPED = _ROOT / "src" / "strata" / "pebble"


def _prepare(arguments: argparse.Namespace) -> None:
    from pebble.data.stock import prepare

    stock = prepare(arguments.stock)
    print(json.dumps({"prose_tokens": len(stock.prose), "words": len(stock.words), "library": len(stock.library)}))


def _train(arguments: argparse.Namespace) -> None:
    import torch

    from pebble.data.stock import load
    from pebble.exam.teacher import Examiner
    from pebble.learn.loop import Settings, Trainer, train

    settings = Settings(
        arguments.stock,
        arguments.out,
        arguments.budget,
        workers=arguments.workers,
        examine_every=arguments.examine_every,
        seed=arguments.seed,
    )
    stock = load(arguments.stock)
    trainer = Trainer(settings, torch.from_numpy(stock.grid))
    examiner = Examiner(stock, 64)
    train(trainer, examiner)
    trainer.log(step=trainer.at.step, elapsed=trainer.at.elapsed, final=True, **examiner(trainer.model, trainer.dtype))
    torch.save(trainer.model.state_dict(), arguments.out / "weights.pt")
    print("finished", flush=True)


def _export(arguments: argparse.Namespace) -> None:
    import torch

    from pebble.shape import PEBBLE
    from pebble.shelf.files import write

    state = torch.load(arguments.weights, map_location="cpu", weights_only=True)
    template = (arguments.stock / "template.jinja").read_text("utf-8")
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps(write(state, PEBBLE, arguments.stock / "tokenizer.json", template, arguments.out)))


def _evaluate(arguments: argparse.Namespace) -> None:
    import torch

    from pebble.data.stock import load
    from pebble.exam.evaluation import evaluate
    from pebble.exam.report import insert, tables

    torch.set_num_threads(1)  # the products are small: more threads only wait for each other
    stock = load(arguments.stock)
    files = arguments.files or [_SHIPPED / "pebble-q8_0.gguf", _SHIPPED / "pebble-iq3.gguf"]
    results = [
        evaluate(path, stock, arguments.count, lambda line: print(line, flush=True), exact=arguments.exact)
        for path in files
    ]
    print(tables(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), "utf-8")
    if arguments.document:
        insert(arguments.document, results)


def _questions(arguments: argparse.Namespace) -> None:
    from pebble.data.stock import load
    from pebble.exam.elsewhere import write

    write(load(arguments.stock), arguments.count, arguments.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pebble", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text)
        made.add_argument("--stock", type=Path, required=True, help="folder made by prepare")
        return made

    command("prepare", "collect the corpus and train the tokenizer").set_defaults(run=_prepare)
    train = command("train", "train, or resume from the checkpoint in --out")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--budget", type=float, default=1080.0, help="seconds of training")
    train.add_argument("--workers", type=int, default=12, help="processes that make batches")
    train.add_argument("--examine-every", type=float, default=75.0, help="seconds between ability tables")
    train.add_argument("--seed", type=int, default=1)
    train.set_defaults(run=_train)
    export = command("export", "write the two GGUF files from trained weights")
    export.add_argument("--weights", type=Path, required=True)
    export.add_argument("--out", type=Path, default=_SHIPPED)
    export.set_defaults(run=_export)
    evaluate = command("evaluate", "examine files through Strata's forward pass")
    evaluate.add_argument("--files", type=Path, nargs="*")
    evaluate.add_argument("--count", type=int, default=64, help="questions per short ability")
    evaluate.add_argument("--exact", action="store_true", help="dequantise matrices to float32")
    evaluate.add_argument("--json", type=Path, help="write the numbers here")
    evaluate.add_argument("--document", type=Path, help="write the tables between this document's markers")
    evaluate.set_defaults(run=_evaluate)
    questions = command("questions", "write the exam's questions as token ids, for tools/gpu_pebble.py")
    questions.add_argument("--count", type=int, default=64, help="questions per short ability")
    questions.add_argument("--out", type=Path, required=True)
    questions.set_defaults(run=_questions)
    return parser


def main() -> None:
    """Parse and run."""
    arguments = _parser().parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
