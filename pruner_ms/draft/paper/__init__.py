"""The paper's formula, which is not the default; begin with `symbols`.

`penalties` is section 4.1 as published, `released` what the authors' code computes: both are there
to compare with (`variant="paper"`, `variant="released"`).
"""
