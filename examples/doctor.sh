# What is missing here, what works all the same, what the lack costs.
monotron doctor
monotron doctor --json >report.json
test -s report.json
