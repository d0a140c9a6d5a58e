"""What every room uses: statuses, records, errors, arrays, logs, tolerances, progress. Imports no science."""
