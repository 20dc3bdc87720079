"""Projects of ARX (.deid) become a policy, hierarchy files and a CSV file."""

from sqlanon.arx.imported import ImportedProject, import_project

__all__ = ["ImportedProject", "import_project"]
