"""The command line and the job: plan, render, ledger, report."""
