from . import datasets as datasets
from . import diagnostics as diagnostics
from . import manifolds as manifolds
from . import models as models
from . import transforms as transforms
from .distributions import Hinge as Hinge
from .distributions import MatrixVonMisesFisher as MatrixVonMisesFisher
from .distributions import MulticlassHinge as MulticlassHinge
from .distributions import SphericalAdmixture as SphericalAdmixture
from .distributions import UniformSphere as UniformSphere
from .distributions import UniformStiefel as UniformStiefel
from .distributions import VonMisesFisher as VonMisesFisher
from .runs import CheckpointTrace as CheckpointTrace
from .runs import open_run as open_run
from .runs import resume as resume
from .schedules import PolynomialDecay as PolynomialDecay
from .sparse import SparseData as SparseData
from .steps import GMC as GMC
from .steps import SCIR as SCIR
from .steps import SGGMC as SGGMC
from .steps import SGLD as SGLD
from .steps import SGRLD as SGRLD
from .steps import SSGLD as SSGLD
from .steps import SSGNHT as SSGNHT
from .steps import SubgradientHMC as SubgradientHMC
from .steps import gSGNHT as gSGNHT

__version__: str
