"""Tables 1 and 4 of AoANet (Huang et al., ICCV 2019)."""

from legenda.recipes.tables.paper_table import PaperRow, PaperTable

_PAPER = "Huang et al., ICCV 2019"

AOANET_TABLES = (
    PaperTable(
        name="aoanet.table1",
        title="AoANet among single models, after self-critical training",
        source=f"{_PAPER}, Table 1, right half",
        metrics=("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE"),
        rows=(
            PaperRow("LSTM", None, (None, 31.9, 25.5, 54.3, 106.3, None)),
            PaperRow("SCST", None, (None, 34.2, 26.7, 55.7, 114.0, None)),
            PaperRow("LSTM-A", None, (78.6, 35.5, 27.3, 56.8, 118.3, 20.8)),
            PaperRow("Up-Down", "coco.updown", (79.8, 36.3, 27.7, 56.9, 120.1, 21.4)),
            PaperRow("RFNet", None, (79.1, 36.5, 27.7, 57.3, 121.9, 21.2)),
            PaperRow("GCN-LSTM", None, (80.5, 38.2, 28.5, 58.3, 127.6, 22.0)),
            PaperRow("SGAE", None, (80.8, 38.4, 28.4, 58.6, 127.8, 22.1)),
            PaperRow("AoANet", "coco.aoanet", (80.2, 38.9, 29.2, 58.8, 129.8, 22.4)),
        ),
    ),
    PaperTable(
        name="aoanet.table4",
        title="Attention on attention in the encoder and in the decoder, after cross-entropy",
        source=f"{_PAPER}, Table 4",
        metrics=("BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D"),
        rows=(
            PaperRow("Base", "aoanet.table4.base", (75.7, 34.9, 56.0, 109.5)),
            PaperRow("+ Enc: Refine (w/o AoA)", "aoanet.table4.refine", (77.0, 35.6, 56.4, 112.5)),
            PaperRow("+ Enc: Refine (w/ AoA)", "aoanet.table4.refine_aoa", (76.7, 36.1, 56.7, 114.5)),
            PaperRow("+ Dec: LSTM", "aoanet.table4.lstm", (76.8, 35.9, 56.6, 113.5)),
            PaperRow("+ Dec: AoA", "aoanet.table4.aoa", (76.6, 35.8, 56.6, 113.8)),
            PaperRow("+ Dec: LSTM + AoA", "aoanet.table4.lstm_aoa", (None, None, None, None)),
            PaperRow("+ Dec: MH-Att", "aoanet.table4.mh", (75.8, 34.8, 56.0, 109.6)),
            PaperRow("+ Dec: MH-Att, LSTM", "aoanet.table4.mh_lstm", (76.6, 35.8, 56.7, 113.8)),
            PaperRow("+ Dec: MH-Att, AoA", "aoanet.table4.mh_aoa", (76.9, 36.1, 56.6, 114.3)),
            PaperRow("Full: AoANet", "aoanet.table4.full", (77.4, 37.2, 57.5, 119.8)),
        ),
        note="Of LSTM + AoA the paper gives no scores: its training was unstable.",
    ),
)
