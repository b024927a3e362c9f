# Pumps three times, then breaks; who waits for it sees that and says so.
pressure=${1:?usage: pump.sh PRESSURE}
for stroke in 1 2 3; do
    echo "stroke $stroke at $pressure bar"
    sleep 0.3
done
echo "valve $stroke: no pressure" >&2
exit 3
