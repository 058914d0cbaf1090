"""The one error users see: what is wrong, where, and what to do, on one line; exit status 2."""


class GraphdiffError(Exception):
    """Something could not be run or read.

    `what` happened, `where` (file, node, line), and the `fix` a person can apply.
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.fix = what, where, fix

    def __str__(self) -> str:
        text = self.what + (f" ({self.where})" if self.where else "") + (f": {self.fix}" if self.fix else "")
        return " ".join(text.split())


class Damage(GraphdiffError):
    """A file that is being read is damaged. Never a reason why something could not be told: nothing in it may be believed."""
