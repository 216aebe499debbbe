"""Tables 1 and 3 of X-LAN (Pan et al., CVPR 2020)."""

from legenda.recipes.tables.paper_table import PaperRow, PaperTable

_PAPER = "Pan et al., CVPR 2020"
_METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")

XLAN_TABLES = (
    PaperTable(
        name="xlan.table1",
        title="X-LAN and X-Transformer among single models, after self-critical training",
        source=f"{_PAPER}, Table 1, right half",
        metrics=_METRICS,
        rows=(
            PaperRow("LSTM", None, (None, None, None, 31.9, 25.5, 54.3, 106.3, None)),
            PaperRow("SCST", None, (None, None, None, 34.2, 26.7, 55.7, 114.0, None)),
            PaperRow("LSTM-A", None, (78.6, None, None, 35.5, 27.3, 56.8, 118.3, 20.8)),
            PaperRow("RFNet", None, (79.1, 63.1, 48.4, 36.5, 27.7, 57.3, 121.9, 21.2)),
            PaperRow("Up-Down", "coco.updown", (79.8, None, None, 36.3, 27.7, 56.9, 120.1, 21.4)),
            PaperRow("GCN-LSTM", None, (80.5, None, None, 38.2, 28.5, 58.3, 127.6, 22.0)),
            PaperRow("LBPF", None, (80.5, None, None, 38.3, 28.5, 58.4, 127.6, 22.0)),
            PaperRow("SGAE", None, (80.8, None, None, 38.4, 28.4, 58.6, 127.8, 22.1)),
            PaperRow("AoANet", "coco.aoanet", (80.2, None, None, 38.9, 29.2, 58.8, 129.8, 22.4)),
            PaperRow("X-LAN", "coco.xlan", (80.8, 65.6, 51.4, 39.5, 29.5, 59.2, 132.0, 23.4)),
            PaperRow("Transformer", None, (80.2, 64.8, 50.5, 38.6, 28.8, 58.5, 128.3, 22.6)),
            PaperRow("X-Transformer", "coco.xtransformer", (80.9, 65.8, 51.5, 39.7, 29.5, 59.1, 132.8, 23.4)),
        ),
    ),
    PaperTable(
        name="xlan.table3",
        title="X-Linear attention in the encoder and in the decoder, after cross-entropy",
        source=f"{_PAPER}, Table 3",
        metrics=_METRICS,
        rows=(
            PaperRow(
                "LSTM + conventional attention",
                "xlan.table3.base",
                (None, 60.3, 46.7, 36.1, 27.9, 56.7, 114.1, 20.9),
            ),
            PaperRow("LSTM + X-Linear", "xlan.table3.encoder0", (76.9, 60.9, 47.3, 36.6, 28.2, 57.0, 117.0, 21.2)),
            PaperRow("1 x X-Linear", "xlan.table3.encoder1", (77.3, 61.5, 47.9, 37.1, 28.5, 57.3, 118.2, 21.6)),
            PaperRow("2 x X-Linear", "xlan.table3.encoder2", (77.5, 61.9, 48.4, 37.7, 28.6, 57.7, 119.4, 21.6)),
            PaperRow("3 x X-Linear", "xlan.table3.encoder3", (None, 62.2, 48.6, 37.8, 28.6, 57.7, 120.0, 21.6)),
            PaperRow("4 x X-Linear", "xlan.table3.encoder4", (None, 62.3, 48.7, 37.8, 28.6, 57.8, 120.4, 21.6)),
            PaperRow("4 x X-Linear (+ELU)", "xlan.table3.full", (78.0, 62.3, 48.9, 38.2, 28.8, 58.0, 122.0, 21.9)),
        ),
        note="BLEU-1 of three rows is not legible in the copy of the paper that these numbers were read from.",
    ),
)
