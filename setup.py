"""Packaging: the installation of the start-up file; everything else is in pyproject.toml."""

from distutils.command.install_data import install_data  # setuptools provides distutils

from setuptools import Distribution, setup


class InstallBesidePackages(install_data):
    """Install ``data_files`` into site-packages, where the interpreter reads ``.pth`` files."""

    def finalize_options(self):
        """Take the folder of the packages instead of the environment's root."""
        self.set_undefined_options("install", ("install_lib", "install_dir"), ("root", "root"), ("force", "force"))


class WithData(Distribution):
    """A distribution with ``has_data``, which an editable install calls; setuptools only has ``has_data_files``."""

    def has_data(self):
        """Whether there are ``data_files``."""
        return self.has_data_files()


setup(
    distclass=WithData,
    data_files=[("", ["fairseq_attnvariants.pth"])],
    cmdclass={"install_data": InstallBesidePackages},
)
