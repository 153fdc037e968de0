"""Turns an upstream checkout into the pull request's tree: `python -m patches TARGET --tree DIR`.

cli (arguments) · targets (what each repository gets) · operator (its files, from the plugin's) · sites, lists (edits of
upstream files by position) · tree (git, writing, commit) · message (the commit's text). Not installed with the plugin.
"""
