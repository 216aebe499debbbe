"""Further tasks: questions about images, referring expressions, translation, and captioned videos.

Each folder is whole: model, data, metric, objective and report. Nothing else names its parts: the registries join those
that PARTS of its `__init__.py` names, by kind and name, and import each when it is used.
"""
