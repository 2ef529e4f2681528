"""Sentences to calibrate on. None of them is one that parity is measured on."""

from __future__ import annotations

_SENTENCES = """\
The train leaves at a quarter past nine from platform four.
We never found out who had left the gate open.
omg just saw this, are you serious right now???
The minister resigned hours after the report was made public.
Heat the oil, fry the garlic until golden and set it aside.
It broke on the first day. I want my money back.
My son has learned to tie his shoes, and now he ties everything.
A slow, beautiful and slightly too long film about grief.
Sales in the third quarter were up by 12 % on last year.
Why does nobody ever reply to my messages?
She plays the cello as if she were telling a secret.
Lots of snow overnight; schools stay closed in the valley.
The jury found him guilty on two of the five counts.
Happy birthday!! Hope you have the best day :)
This is the third time that the parcel has gone to the wrong house.
People like him should not be allowed to vote, someone wrote.
The vaccine was tested on forty thousand volunteers.
Could we move the meeting to Thursday afternoon, please?
Nothing in this restaurant tastes of anything.
The old harbour has become a row of cafés and bicycle shops.
Their defence collapsed after the break and they lost by three goals.
I can't stand the way they talk about women on that channel.
Water boils at a lower temperature in the mountains.
The screen is bright, the keyboard is fine, but the fan never stops.
He wrote his first novel on the backs of delivery notes.
Residents complained about the noise from the new airport road.
idk man, i think she's right and you're just jealous
The library lends tools, musical instruments and telescopes.
What is the difference between a moth and a butterfly?
Workers at both plants voted to strike from Monday.
Two stars: one for the view and one for the breakfast.
The comet will be visible to the naked eye until the end of the month.
You are all idiots, and I am tired of explaining it.
Remember to water the tomatoes while we are away.
An appeals court blocked the law a day before it took effect.
Our dog is afraid of balloons, umbrellas and the neighbour's cat.
The band split up in 1994 and have refused to speak since.
Please keep off the grass.
It's cheap, it's light and it does exactly what it says.
Researchers followed the same families for thirty years.
If it rains, the concert will be held in the church.
That referee should be ashamed of himself #robbed
The recipe calls for two eggs, 200 g of flour and a pinch of salt.
I grew up between two languages and dream in a third.
Inflation has eaten whatever the wage agreement gave them.
Great acting; terrible ending; I would watch it again.
The door on the left leads to the cellar.
He thanked the nurses who had looked after his mother.
They want to close the only hospital within fifty miles.
The software asks for my password every ten minutes.
Nobody is illegal, read the banner above the bridge.
Wolves have returned to the forests along the border.
Sorry, I was on mute. Can you hear me now?
A small bakery in a side street makes the best bread in town.
The treaty bans the testing of such weapons in space.
We walked for hours without meeting a soul.
This book made me laugh on the bus, which was embarrassing.
The company denies that it shared the data with advertisers.
Do your homework before you post nonsense like this, @everyone.
His hands shook as he opened the letter.
The museum owns four thousand clocks, none of which agree.
Turn the handle to the right until it clicks.
My flight was cancelled and the hotel lost my booking; what a week!
The children built a raft out of barrels, and it floated."""


def calibration_texts() -> list[str]:
    """Give 128 texts: each sentence alone, and with the two that follow it."""
    sentences = _SENTENCES.splitlines()
    return sentences + [
        " ".join((sentences + sentences)[start : start + 3]) for start in range(len(sentences))
    ]
