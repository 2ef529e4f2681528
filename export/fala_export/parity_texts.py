"""Sentences to measure parity on."""

from __future__ import annotations

from pathlib import Path

from fala import ExportError

_SENTENCES = """\
The bus was late again, so we walked.
Nobody asked me whether I wanted to move.
I can't believe they cancelled the show after one season!
What time does the museum close on Sundays?
Prices rose by 3.4 % in the year to October.
You people never listen, do you?
My grandmother kept bees until she was ninety.
This charger stopped working after two weeks; avoid it.
lol that was the worst take i have read all day
The committee will publish its findings next spring.
Add the onions first, and the garlic a minute later.
He scored twice in extra time and was booked for taking off his shirt.
Thank you so much, this made my week.
A quiet film about two brothers and a boat that never sails.
Please restart the router before you call support.
She voted against the bill because it said nothing about rents.
Rain is expected in the north, with sunny spells elsewhere.
I'd rather eat my own shoes than fly with them again.
The patient was discharged on the third day without fever.
Our landlord raised the rent and then ignored the leak.
Shares of the carmaker fell sharply after the recall.
Go back to where you came from, they shouted at her.
It is a truth seldom mentioned that cats prefer cardboard.
Great sound, weak battery, ugly case.
The river froze in January for the first time in decades.
Is there a vegetarian option on the menu?
Everyone deserves to be treated with respect.
They said the update would fix it. It did not.
Light travels about thirty centimetres in a nanosecond.
The plot makes no sense, but the dancing is glorious.
Parliament debated the treaty until three in the morning.
Don't feed the ducks; bread is bad for them.
I was born in a town whose name has changed four times.
An old laptop, a slow connection and far too many tabs.
Two suspects were arrested near the border late on Friday.
You call this coffee?
The orchestra tuned while the lights went down.
If you see the blue door, you have gone too far.
Doctors warn that the heat is most dangerous for the elderly.
Best headphones I have ever owned, hands down.
The new teacher remembered all our names on the first day.
He is a liar, and his fans know it.
Scientists found a spider that builds decoys of itself.
My visa expires in March and nobody answers the phone.
The soup was cold, the waiter was rude and the bill was wrong.
Students marched through the centre to protest against the fees.
A gripping thriller that loses its nerve in the last act.
Could you send me the slides from yesterday's meeting?
The bridge is closed to lorries until further notice.
Why do women's trousers never have proper pockets?
Wash at forty degrees and do not tumble dry.
The senator denied every allegation and left without questions.
We planted twelve trees; the goats ate nine.
That joke wasn't funny the first time either.
The camera is easy to use, even with gloves on.
Unemployment among the young has halved since the crisis.
I miss the smell of my father's workshop.
Immigrants built half of this city and clean the other half.
Turn left at the church and follow the smell of bread.
The goalkeeper apologised to the travelling supporters.
My phone thinks I am in another country.
The sequel is longer, louder and somehow emptier.
Interest rates will stay where they are, the bank announced.
Sleep well; tomorrow we climb."""

_PASSAGES = (1, 2, 5)  # sentences a text: remarks, headlines with a line below, paragraphs


def parity_texts(path: Path | None) -> list[str]:
    """Give the texts to compare on: a file's lines, or 192 texts of one to five sentences.

    Raises:
        ExportError: The file cannot be read, or has no text.
    """
    if path is None:
        sentences = _SENTENCES.splitlines()
        return [
            " ".join(sentences[(start + offset) % len(sentences)] for offset in range(length))
            for length in _PASSAGES
            for start in range(len(sentences))
        ]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path}: cannot be read as text: {error}") from error
    if texts := [line.strip() for line in lines if line.strip()]:
        return texts
    raise ExportError(f"{path}: no text in it")
