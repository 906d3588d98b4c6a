"""The project's Python tools. They run as modules from the project's folder: python -m tools.reference.export --help"""
