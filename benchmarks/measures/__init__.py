"""The measures by name: each module has `measure(bench)`, which runs contenders, has them judged, and adds figures."""
