"""Tests of the ATK package and of the stand-in that runs it where ATK is missing."""
