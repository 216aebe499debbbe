"""The types of the names that `legenda` loads when they are used."""

from legenda import attention as attention
from legenda import data as data
from legenda import decoding as decoding
from legenda import evaluation as evaluation
from legenda import extractors as extractors
from legenda import features as features
from legenda import images as images
from legenda import importers as importers
from legenda import metrics as metrics
from legenda import models as models
from legenda import papers as papers
from legenda import recipes as recipes
from legenda import report as report
from legenda import tasks as tasks
from legenda import text as text
from legenda import training as training
from legenda.attention.config import register_attention as register_attention
from legenda.attention.distance import DISTANCES, WINDOWS
from legenda.attention.geometry import GEOMETRIES
from legenda.attention.normalization import NORMS
from legenda.data.registry import DATASETS
from legenda.errors import CheckpointError as CheckpointError
from legenda.errors import ConfigError as ConfigError
from legenda.errors import DataError as DataError
from legenda.errors import LegendaError as LegendaError
from legenda.experiment import train as train
from legenda.features.extractors import EXTRACTORS
from legenda.features.readers import STORES
from legenda.io import __version__ as __version__
from legenda.metrics import register_metric as register_metric
from legenda.models.checkpoint import load as load
from legenda.models.registry import DECODERS
from legenda.models.registry import create_model as create_model
from legenda.models.registry import list_models as list_models
from legenda.models.registry import register_model as register_model
from legenda.papers import register_recipe as register_recipe
from legenda.pipeline import Pipeline as Pipeline
from legenda.pipeline import open as open
from legenda.regions import Memory as Memory
from legenda.regions import Regions as Regions
from legenda.registry import load_plugin as load_plugin
from legenda.tasks.base import register_task as register_task
from legenda.tasks.self_critical import REWARDS
from legenda.training.schedules import SCHEDULES

register_dataset = DATASETS.register
register_decoder = DECODERS.register
register_distance = DISTANCES.register
register_extractor = EXTRACTORS.register
register_feature_store = STORES.register
register_geometry = GEOMETRIES.register
register_norm = NORMS.register
register_reward = REWARDS.register
register_schedule = SCHEDULES.register
register_window = WINDOWS.register
