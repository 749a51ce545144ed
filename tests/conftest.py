"""Its being here puts this folder on the import path, so that the tests in the folders below share `made_up`."""
