"""Files that a command line names: which are read, which may be written, and writing that leaves no half of a file.

An output never replaces what the command reads, and a device, a pipe or a link stays what it is.
"""

from graphdiff.paths.inputs import check_operand, checkpoint_files, kind_of, operand_files, python_file, refuse_inputs
from graphdiff.paths.output import STDOUT, check_output_file, is_special, real_path, stated_size
from graphdiff.paths.write import file_behind, write_whole

__all__ = ["STDOUT", "check_operand", "check_output_file", "checkpoint_files", "file_behind", "is_special", "kind_of", "operand_files", "python_file",
           "real_path", "refuse_inputs", "stated_size", "write_whole"]
