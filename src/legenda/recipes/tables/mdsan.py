"""Tables I and IV to XIII of MD-SAN (Ji et al.), all after self-critical training."""

from legenda.recipes.tables.paper_table import PaperRow, PaperTable

_PAPER = "Ji et al., MD-SAN"
_FOUR = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D")
_SIX = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")

_PLAIN = (80.9, 38.9, 29.0, 58.5, 131.2, 22.7)
_DSA = (81.1, 39.3, 29.4, 58.9, 133.3, 23.0)
_MSA = (81.1, 39.5, 29.4, 58.9, 134.0, 23.1)
_FULL = (81.5, 39.8, 29.6, 59.1, 135.1, 23.2)


def _comparisons() -> tuple[PaperTable, ...]:
    """Table I."""
    return (
        PaperTable(
            name="mdsan.table1",
            title="MD-SAN among single models, on features of a 7 x 7 grid",
            source=f"{_PAPER}, Table I, lower half",
            metrics=_SIX,
            rows=(
                PaperRow("Up-Down", "coco.updown", (75.0, 37.3, 28.1, 57.9, 123.8, 21.6)),
                PaperRow("AoANet", "coco.aoanet", (80.8, 39.1, 29.1, 59.1, 130.3, 22.7)),
                PaperRow("Transformer", "coco.mdsan_plain", _PLAIN),
                PaperRow("MMTransformer", None, (80.8, 38.9, 29.1, 58.5, 131.8, 22.7)),
                PaperRow("XTransformer", "coco.xtransformer", (81.0, 39.7, 29.4, 58.9, 132.5, 23.1)),
                PaperRow("RSTNet", None, (81.1, 39.3, 29.4, 58.8, 133.3, 23.0)),
                PaperRow("MD-SAN", "coco.mdsan", _FULL),
            ),
        ),
        PaperTable(
            name="mdsan.table1_regions",
            title="MD-SAN among single models, on features of regions",
            source=f"{_PAPER}, Table I, upper half",
            metrics=_SIX,
            rows=(
                PaperRow("SCST", None, (None, 34.2, 26.7, 55.7, 114.0, None)),
                PaperRow("Up-Down", "coco.updown", (79.8, 36.3, 27.7, 56.9, 120.1, 21.4)),
                PaperRow("RFNet", None, (79.1, 36.5, 27.7, 57.3, 121.9, 21.2)),
                PaperRow("GCN-LSTM", None, (80.5, 38.2, 28.5, 58.3, 127.6, 22.0)),
                PaperRow("SGAE", None, (80.8, 38.4, 28.4, 58.6, 127.8, 22.1)),
                PaperRow("ETA", None, (81.5, 39.3, 28.8, 58.9, 126.6, 22.7)),
                PaperRow("AoANet", "coco.aoanet", (80.2, 38.9, 29.2, 58.8, 129.8, 22.4)),
                PaperRow("ORT", None, (80.5, 38.6, 28.7, 58.4, 128.3, 22.6)),
                PaperRow("Transformer", "coco.mdsan_plain", (80.4, 38.3, 29.0, 58.2, 129.5, 22.5)),
                PaperRow("MMTransformer", None, (80.8, 39.1, 29.2, 58.6, 131.2, 22.6)),
                PaperRow("XTransformer", "coco.xtransformer", (80.9, 39.7, 29.5, 59.1, 132.8, 23.4)),
                PaperRow("MD-SAN", "coco.mdsan", (81.1, 39.5, 29.4, 59.2, 133.5, 23.1)),
            ),
        ),
    )


def _sizes() -> tuple[PaperTable, ...]:
    """Tables IV to VI: layers, branches, how often a branch is left out."""
    return (
        PaperTable(
            name="mdsan.table4",
            title="MD-SAN by layers",
            source=f"{_PAPER}, Table IV",
            metrics=_FOUR,
            rows=(
                PaperRow("l = 2", "mdsan.table4.layers_2", (39.9, 29.5, 59.2, 134.9)),
                PaperRow("l = 3", "mdsan.table4.layers_3", (39.8, 29.6, 59.1, 135.1)),
                PaperRow("l = 4", "mdsan.table4.layers_4", (40.0, 29.5, 59.1, 134.6)),
                PaperRow("l = 5", "mdsan.table4.layers_5", (39.6, 29.6, 59.3, 134.6)),
                PaperRow("l = 6", "mdsan.table4.layers_6", (39.8, 29.5, 59.0, 134.6)),
            ),
        ),
        PaperTable(
            name="mdsan.table5",
            title="Multi-branch attention by branches, without distances",
            source=f"{_PAPER}, Table V",
            metrics=_FOUR,
            rows=(
                PaperRow("M = 1", "mdsan.table5.m1", (38.9, 29.0, 58.5, 131.2)),
                PaperRow("M = 2", "mdsan.table5.m2", (39.3, 29.3, 58.9, 133.3)),
                PaperRow("M = 3", "mdsan.table5.m3", (39.5, 29.4, 58.9, 134.0)),
                PaperRow("M = 4", "mdsan.table5.m4", (39.5, 29.4, 59.1, 133.6)),
            ),
        ),
        PaperTable(
            name="mdsan.table6",
            title="How often training leaves a branch out",
            source=f"{_PAPER}, Table VI",
            metrics=_FOUR,
            rows=(
                PaperRow("ρ = 0.0", "mdsan.table6.drop_0", (39.0, 29.2, 58.6, 131.6)),
                PaperRow("ρ = 0.1", "mdsan.table6.drop_10", (39.4, 29.4, 59.0, 132.9)),
                PaperRow("ρ = 0.2", "mdsan.table6.drop_20", (39.2, 29.4, 58.9, 133.2)),
                PaperRow("ρ = 0.3", "mdsan.table6.drop_30", (39.4, 29.3, 58.9, 133.6)),
                PaperRow("ρ = 0.4", "mdsan.table6.drop_40", (39.5, 29.4, 58.9, 134.0)),
                PaperRow("ρ = 0.5", "mdsan.table6.drop_50", (39.4, 29.4, 59.0, 132.8)),
            ),
        ),
    )


def _places() -> tuple[PaperTable, ...]:
    """Tables VII to IX: what attention knows of places."""
    return (
        PaperTable(
            name="mdsan.table7",
            title="Positions and distances in the plain Transformer",
            source=f"{_PAPER}, Table VII",
            metrics=_SIX,
            rows=(
                PaperRow("Transformer", "mdsan.table7.plain", _PLAIN),
                PaperRow("Transformer+AbsPE", "mdsan.table7.abspe", (81.0, 39.2, 29.2, 58.7, 132.5, 22.8)),
                PaperRow("Transformer+RelPE", "mdsan.table7.relpe", (81.1, 39.2, 29.3, 58.8, 132.9, 23.1)),
                PaperRow("Transformer+ChebyDSA", "mdsan.table7.cheby", (81.0, 39.2, 29.3, 58.9, 133.1, 23.0)),
                PaperRow("Transformer+EucliDSA", "mdsan.table7.eucli", (81.1, 39.2, 29.3, 59.0, 133.2, 23.0)),
                PaperRow("Transformer+DSA", "mdsan.table7.dsa", _DSA),
            ),
        ),
        PaperTable(
            name="mdsan.table8",
            title="How distances rescale the scores",
            source=f"{_PAPER}, Table VIII",
            metrics=_SIX,
            rows=(
                PaperRow("Transformer", "mdsan.table8.plain", _PLAIN),
                PaperRow("Transformer+DSA-LPF", "mdsan.table8.lpf", (81.1, 39.1, 29.3, 58.7, 133.0, 22.9)),
                PaperRow("Transformer+DSA-QPF", "mdsan.table8.qpf", (81.3, 39.3, 29.3, 58.9, 133.2, 22.8)),
                PaperRow("Transformer+DSA-NS", "mdsan.table8.ns", (81.1, 39.1, 29.2, 58.6, 132.8, 22.9)),
                PaperRow("Transformer+DSA", "mdsan.table8.dsa", _DSA),
            ),
            note="The rows' names are not legible in the copy of the paper that these numbers were read from; they are "
            "given in the order in which its text names the functions.",
        ),
        PaperTable(
            name="mdsan.table9",
            title="Distances against local windows",
            source=f"{_PAPER}, Table IX",
            metrics=_SIX,
            rows=(
                PaperRow("Transformer", "mdsan.table9.plain", _PLAIN),
                PaperRow("Transformer+Swin", "mdsan.table9.swin", (81.0, 39.2, 29.3, 58.7, 132.5, 22.8)),
                PaperRow("Transformer+Halo", "mdsan.table9.halo", (80.9, 39.4, 29.3, 58.8, 132.8, 22.9)),
                PaperRow("Transformer+DSA", "mdsan.table9.dsa", _DSA),
            ),
        ),
    )


def _branches() -> tuple[PaperTable, ...]:
    """Tables X to XIII: branches against wider attention, and where they stand."""
    return (
        PaperTable(
            name="mdsan.table10",
            title="Branches against other wider attention",
            source=f"{_PAPER}, Table X",
            metrics=_SIX,
            rows=(
                PaperRow("Transformer", "mdsan.table10.plain", _PLAIN),
                PaperRow("Transformer+Talking", "mdsan.table10.talking", (81.1, 39.3, 29.2, 58.9, 132.4, 22.7)),
                PaperRow("Transformer+Mh-Heads", "mdsan.table10.heads", (81.0, 39.2, 29.3, 58.8, 132.2, 22.9)),
                PaperRow("Transformer+ExtendQK", "mdsan.table10.extendqk", (81.1, 39.3, 29.4, 58.9, 133.1, 22.9)),
                PaperRow("Transformer-Large", "mdsan.table10.large", (81.0, 39.1, 29.2, 58.8, 132.0, 22.8)),
                PaperRow("Transformer+MSA", "mdsan.table10.msa", _MSA),
            ),
        ),
        PaperTable(
            name="mdsan.table11",
            title="Heads left out in training, in the place of branches",
            source=f"{_PAPER}, Table XI",
            metrics=_SIX,
            rows=(
                PaperRow("Mh-Heads, ρ = 0.0", "mdsan.table11.heads_0", (81.0, 39.2, 29.3, 58.8, 132.2, 22.9)),
                PaperRow("Mh-Heads, ρ = 0.2", "mdsan.table11.heads_20", (81.0, 39.4, 29.3, 58.8, 132.9, 22.8)),
                PaperRow("Mh-Heads, ρ = 0.3", "mdsan.table11.heads_30", (81.2, 39.3, 29.3, 58.8, 133.1, 22.9)),
                PaperRow("Mh-Heads, ρ = 0.4", "mdsan.table11.heads_40", (81.1, 39.4, 29.4, 58.9, 133.3, 23.0)),
                PaperRow("ExtendQK, ρ = 0.0", "mdsan.table11.extendqk_0", (81.1, 39.3, 29.4, 58.9, 133.1, 22.9)),
                PaperRow("ExtendQK, ρ = 0.2", "mdsan.table11.extendqk_20", (81.0, 39.4, 29.2, 58.7, 133.4, 22.8)),
                PaperRow("ExtendQK, ρ = 0.3", "mdsan.table11.extendqk_30", (81.0, 39.4, 29.3, 58.8, 133.3, 22.9)),
                PaperRow("ExtendQK, ρ = 0.4", "mdsan.table11.extendqk_40", (81.1, 39.2, 29.2, 58.8, 133.0, 22.8)),
                PaperRow("MSA, ρ = 0.4", "mdsan.table11.msa", _MSA),
            ),
        ),
        PaperTable(
            name="mdsan.table12",
            title="Which layers of MD-SAN have branches",
            source=f"{_PAPER}, Table XII",
            metrics=_SIX,
            rows=(
                PaperRow("Transformer+DSA", "mdsan.table12.dsa", _DSA),
                PaperRow("+MSA-1", "mdsan.table12.msa_1", (81.2, 39.5, 29.3, 58.9, 133.4, 23.0)),
                PaperRow("+MSA-2", "mdsan.table12.msa_2", (81.0, 39.3, 29.4, 59.0, 133.7, 23.1)),
                PaperRow("+MSA-3", "mdsan.table12.msa_3", (81.4, 39.6, 29.3, 58.9, 133.5, 22.9)),
                PaperRow("+MSA-1,2", "mdsan.table12.msa_12", (80.8, 39.1, 29.5, 58.9, 133.4, 23.0)),
                PaperRow("+MSA-1,3", "mdsan.table12.msa_13", (81.5, 39.7, 29.5, 59.0, 134.8, 23.0)),
                PaperRow("+MSA-2,3", "mdsan.table12.msa_23", (81.4, 39.6, 29.4, 59.0, 134.2, 23.0)),
                PaperRow("+MSA", "mdsan.table12.full", _FULL),
            ),
        ),
        PaperTable(
            name="mdsan.table13",
            title="Distances and branches together",
            source=f"{_PAPER}, Table XIII",
            metrics=_SIX,
            rows=(
                PaperRow("Transformer", "mdsan.table13.plain", _PLAIN),
                PaperRow("Transformer+DSA", "mdsan.table13.dsa", _DSA),
                PaperRow("Transformer+MSA", "mdsan.table13.msa", _MSA),
                PaperRow("Transformer+DSA+MSA", "mdsan.table13.full", _FULL),
            ),
        ),
    )


MDSAN_TABLES = (*_comparisons(), *_sizes(), *_places(), *_branches())
