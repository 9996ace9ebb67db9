"""Command line: prepare, train."""

import argparse
import json
from pathlib import Path


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


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="pebble", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("prepare", help="collect the corpus and train the tokenizer")
    command.add_argument("--stock", type=Path, required=True)
    command.set_defaults(run=_prepare)
    command = commands.add_parser("train", help="train, or resume from the checkpoint in --out")
    command.add_argument("--stock", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--budget", type=float, default=1080.0, help="seconds of training")
    command.add_argument("--workers", type=int, default=12)
    command.add_argument("--examine-every", type=float, default=75.0)
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=_train)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
