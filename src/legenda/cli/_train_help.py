"""The help of `legenda train`."""

USAGE = """usage: legenda train RECIPE [--out RUN] [--init-from RUN] [--seeds N] [--device DEVICE]
                     [--precision float32|bf16|fp16] [--devices N] [--nodes N] [--strategy ddp|fsdp]
                     [--stages all|first] [--recipe-file FILE] [--model.FIELD VALUE]
                     [--data.FIELD VALUE] [--training.FIELD VALUE] [--fine-tuning.FIELD VALUE]

Train a recipe into a run folder (runs/RECIPE unless --out is given); called again, it resumes. A recipe has one or two
stages: training, and fine-tuning, which starts from the best model of the first.

--init-from RUN starts from the model of a trained run, with its vocabulary and configuration; it replaces the first
of two stages: legenda train flickr8k.ngsan --init-from runs/x --out runs/y fine-tunes x.
--stages first stops after the first of two, so that several runs can start from its model.
--model.decoder.name transformer gives the model the decoder of another, whose options are --model.decoder.FIELD VALUE.
--training.schedule and --training.objective take names: step_decay, table, noam, plateau, constant, cosine,
inverse_sqrt; and cross_entropy, self_critical.
--device is auto, cpu, cuda, cuda:N or mps; --precision bf16 is --training.precision bf16-mixed in every stage.
--seeds 3 trains three runs, RUN/seed0 to RUN/seed2. --devices and --nodes share every step among processes, each with
the whole model, or with a shard of it (--strategy fsdp); with torchrun, each of its processes calls this command.
--recipe-file FILE reads user-defined recipes, and rewards, from a Python file.

legenda recipes lists the recipes; legenda train RECIPE --help lists every field that can be set."""
