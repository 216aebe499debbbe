"""The one exception for mistakes a user can mend."""


class UserError(Exception):
    """A mistake of the caller that one sentence explains: it names the file, option or key, and the remedy.

    The command line prints the sentence and leaves with exit code 2; a library user sees an ordinary exception.
    """
