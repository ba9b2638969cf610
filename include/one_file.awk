# SPDX-License-Identifier: MIT
# A header as one file: awk -f one_file.awk HEADER. In the place of each quoted include stands the text of that file, once; the
# line with the license stands at the top alone.
function put(file,    folder, line, status)
{
	if (file in seen)
		return
	seen[file] = 1
	folder = file
	sub(/[^\/]*$/, "", folder)
	while ((status = (getline line < file)) > 0) {
		if (line ~ /^#include "/) {
			gsub(/^#include "|".*/, "", line)
			put(folder line)
		} else if (line !~ /SPDX-License-Identifier/ || !licensed++)
			print line
	}
	if (status < 0) {
		print "one_file.awk: cannot read " file >"/dev/stderr"
		exit 1
	}
	close(file)
}
BEGIN {
	put(ARGV[1])
}
