"""What every function that runs in Spark's Python workers begins with."""

import sys
from zipimport import zipimporter


def spare_archives() -> None:
    """Let Python forget the archives on its path, until it imports from them again.

    Spark has Python look for new modules before each task, and Python then reads the directories of Spark's own two
    archives anew: a tenth of a second and more, which is most of what a small task costs.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
