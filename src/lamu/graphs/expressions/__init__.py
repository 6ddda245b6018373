"""What a program computes of its variables before they are arguments of a factor."""

# An expression is written once, when the program runs, and evaluated at any statistics of the variables: it answers
# with the statistics of its own value that a factor asks for. It stays affine in those of each variable, because a
# product takes two independent variables at most, and a category picks by averaging, \(T(x_z) = \sum_k z_k T(x_k)\).
#
# | file | expressions |
# |---|---|
# | `interface` | `Expression`, the `Environment` where one is evaluated, `Variable`, `Constant` and `Input` |
# | `members` | `Indexed`, \(x_z\), and `Sliced` |
# | `products` | `Times`, \(W z\), `Sum`, `Scaled`, \(c x\), `Scale`, and `StickBreaking` |

from lamu.graphs.expressions.interface import (
    Constant,
    Environment,
    Expression,
    Input,
    Value,
    Variable,
    common_shape,
    lifted,
)
from lamu.graphs.expressions.members import Indexed, Sliced
from lamu.graphs.expressions.products import Scale, Scaled, StickBreaking, Sum, Times

__all__ = [
    "Constant",
    "Environment",
    "Expression",
    "Indexed",
    "Input",
    "Scale",
    "Scaled",
    "Sliced",
    "StickBreaking",
    "Sum",
    "Times",
    "Value",
    "Variable",
    "common_shape",
    "lifted",
]
