# The mapper of the guide to phases: it writes down in each phase what it is given.
echo "$LOOPSCOPE_PHASE: $*" >> map
