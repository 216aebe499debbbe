"""The contractions of the official VQA evaluation (GT-Vision-Lab/VQA, vqaEval.py).

The table is reproduced with its irregular entries, since they affect the score. Entries without effect (in
upper case, or equal to their replacement) are omitted.
"""

_WITH_APOSTROPHES = """
ain't aren't can't couldn't could've didn't doesn't don't hadn't hasn't haven't he'd he's how'd how'll how's isn't
it'd it'll ma'am mightn't might've mustn't must've needn't not've o'clock oughtn't shan't shouldn't should've
somebody'll somebody's someone'd someone'll someone's something'd something'll that's there'd there're there's
they'd they'll they're they've 'twas wasn't weren't we've what'll what're what's what've when's where'd where's
where've who'd who'll who's who've why'll why're why's won't wouldn't would've y'all you'd you'll you're you've
"""
"""Words that are often written without apostrophes."""

_IRREGULAR = {
    "'ow'sat": "'ow's'at",
    "'ows'at": "'ow's'at",
    "couldn'tve": "couldn't've",
    "couldnt've": "couldn't've",
    "hadn'tve": "hadn't've",
    "hadnt've": "hadn't've",
    "he'dve": "he'd've",
    "hed've": "he'd've",
    "it'dve": "it'd've",
    "itd've": "it'd've",
    "mightn'tve": "mightn't've",
    "mightnt've": "mightn't've",
    "ow's'at": "'ow's'at",
    "she'dve": "she'd've",
    "shed've": "she'd've",
    "shouldn'tve": "shouldn't've",
    "shouldnt've": "shouldn't've",
    "somebody'd": "somebodyd",
    "somebody'dve": "somebody'd've",
    "somebodyd've": "somebody'd've",
    "someone'dve": "someone'd've",
    "someoned've": "someone'd've",
    "something'dve": "something'd've",
    "somethingd've": "something'd've",
    "there'dve": "there'd've",
    "thered've": "there'd've",
    "they'dve": "they'd've",
    "theyd've": "they'd've",
    "we'dve": "we'd've",
    "wed've": "we'd've",
    "who'dve": "who'd've",
    "whod've": "who'd've",
    "wouldn'tve": "wouldn't've",
    "wouldnt've": "wouldn't've",
    "y'all'dve": "y'all'd've",
    "y'alld've": "y'all'd've",
    "y'allll": "y'all'll",
    "yall'd've": "y'all'd've",
    "yall'll": "y'all'll",
    "you'dve": "you'd've",
    "youd've": "you'd've",
}
"""Words with some of their apostrophes, and two entries that remove or add an apostrophe wrongly."""

CONTRACTIONS = {word.replace("'", ""): word for word in _WITH_APOSTROPHES.split()} | _IRREGULAR
"""The replacement of each word, by the word in lower case."""
