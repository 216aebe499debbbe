"""Tables 1 to 4 and 6 of NG-SAN (Guo et al., CVPR 2020)."""

from legenda.recipes.tables.paper_table import PaperRow, PaperTable

_PAPER = "Guo et al., CVPR 2020"
_METRICS = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")

NGSAN_TABLES = (
    PaperTable(
        name="ngsan.table1",
        title="Self-attention with and without normalised queries, by layers",
        source=f"{_PAPER}, Table 1",
        metrics=_METRICS,
        rows=(
            PaperRow("SAN, 1 layer", "ngsan.table1.transformer_1", (36.8, 28.0, 57.6, 123.4, 21.8)),
            PaperRow("N-SAN, 1 layer", "ngsan.table1.nsan_1", (38.2, 28.6, 58.2, 127.2, 22.2)),
            PaperRow("SAN, 2 layers", "ngsan.table1.transformer_2", (38.2, 28.5, 58.3, 127.1, 22.3)),
            PaperRow("N-SAN, 2 layers", "ngsan.table1.nsan_2", (38.9, 28.9, 58.6, 129.7, 22.6)),
            PaperRow("SAN, 4 layers", "ngsan.table1.transformer_4", (38.4, 28.6, 58.4, 128.6, 22.6)),
            PaperRow("N-SAN, 4 layers", "ngsan.table1.nsan_4", (39.3, 29.1, 58.9, 130.8, 23.0)),
            PaperRow("SAN, 6 layers", "ngsan.table1.transformer_6", (38.6, 28.6, 58.5, 128.8, 22.5)),
            PaperRow("N-SAN, 6 layers", "ngsan.table1.nsan_6", (39.3, 29.2, 59.1, 131.1, 23.0)),
        ),
    ),
    PaperTable(
        name="ngsan.table2",
        title="Which normalisation of the queries",
        source=f"{_PAPER}, Table 2",
        metrics=_METRICS,
        rows=(
            PaperRow("SAN", "ngsan.table2.none", (38.4, 28.6, 58.4, 128.6, 22.6)),
            PaperRow("LN", "ngsan.table2.ln", (38.5, 28.6, 58.3, 128.2, 22.5)),
            PaperRow("BN", "ngsan.table2.bn", (38.8, 28.9, 58.7, 129.4, 22.8)),
            PaperRow("IN", "ngsan.table2.in_affine", (39.4, 29.2, 59.0, 130.7, 23.0)),
            PaperRow("IN w/o γ, β", "ngsan.table2.in", (39.3, 29.1, 58.9, 130.8, 23.0)),
        ),
    ),
    PaperTable(
        name="ngsan.table3",
        title="What is normalised: queries, keys or both",
        source=f"{_PAPER}, Table 3",
        metrics=_METRICS,
        rows=(
            PaperRow("neither", "ngsan.table3.none", (38.4, 28.6, 58.4, 128.6, 22.6)),
            PaperRow("query", "ngsan.table3.q", (39.3, 29.1, 58.9, 130.8, 23.0)),
            PaperRow("key", "ngsan.table3.k", (39.2, 29.0, 58.8, 130.1, 22.8)),
            PaperRow("query and key", "ngsan.table3.qk", (39.4, 29.1, 58.8, 130.7, 23.1)),
        ),
    ),
    PaperTable(
        name="ngsan.table4",
        title="Kinds of geometry in self-attention",
        source=f"{_PAPER}, Table 4",
        metrics=_METRICS,
        rows=(
            PaperRow("SAN", "ngsan.table4.none", (38.4, 28.6, 58.4, 128.6, 22.6)),
            PaperRow("absolute", "ngsan.table4.absolute", (38.3, 28.5, 58.4, 128.4, 22.6)),
            PaperRow("content-independent", "ngsan.table4.content", (39.2, 29.1, 58.9, 131.0, 22.9)),
            PaperRow("key-dependent", "ngsan.table4.key", (38.9, 29.0, 58.8, 129.5, 22.8)),
            PaperRow("query-dependent", "ngsan.table4.query", (39.3, 29.2, 59.0, 131.4, 23.0)),
        ),
    ),
    PaperTable(
        name="ngsan.table6",
        title="NG-SAN among single models, after self-critical training",
        source=f"{_PAPER}, Table 6",
        metrics=_METRICS,
        rows=(
            PaperRow("Up-Down", "coco.updown", (36.3, 27.7, 56.9, 120.1, 21.4)),
            PaperRow("CAVP", None, (38.6, 28.3, 58.5, 126.3, 21.6)),
            PaperRow("SGAE", None, (39.0, 28.4, 58.9, 129.1, 22.2)),
            PaperRow("VSUA", None, (38.4, 28.5, 58.4, 128.6, 22.0)),
            PaperRow("ORT", None, (38.6, 28.7, 58.4, 128.3, 22.6)),
            PaperRow("AoANet", "coco.aoanet", (38.9, 29.2, 58.8, 129.8, 22.4)),
            PaperRow("MT", None, (39.8, 29.1, 59.1, 130.9, None)),
            PaperRow("SAN", "coco.transformer", (38.4, 28.6, 58.4, 128.6, 22.6)),
            PaperRow("N-SAN", "coco.nsan", (39.3, 29.1, 58.9, 130.8, 23.0)),
            PaperRow("G-SAN", "coco.gsan", (39.3, 29.2, 59.0, 131.4, 23.0)),
            PaperRow("NG-SAN", "coco.ngsan", (39.9, 29.3, 59.2, 132.1, 23.3)),
        ),
    ),
)
