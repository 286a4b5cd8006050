"""The simulation of builds and jobs: its rules, its events and its clock."""
